"""The config that a run folder records, read as plain values: nothing in it is followed, filled in or run.

A run folder may come from somebody else, and it may have been edited by hand.
"""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.schema import NAME_FIELDS, root, schemas
from configs.values import option_names, shown
from policies.run.config import CHECKPOINTS, FORMAT, PERMISSIONS, RECORD
from utils.checkpoint import newest_facts
from utils.disk.own_files import check_run_folder
from utils.options import OptionError

# Of a record that is larger nothing is read: every config that Retrial writes has a few thousand bytes.
MOST_BYTES = 1_000_000
MOST_BRACKETS = 50
# The folder in which Hydra records what it composed, for itself.
HYDRAS = ".hydra"


def recorded(run_dir: Path, mode: str, *, allow_links: bool = False) -> DictConfig:
    """The typed config that a run folder records; the folder is refused if it has links."""
    check_run_folder(run_dir, allow_links=allow_links)
    record = run_dir / RECORD
    if run_dir.name == HYDRAS or not record.is_file():
        raise OptionError(f"{mode}={run_dir} is not a run folder: {_why_not(run_dir)}")
    try:
        values = _plain_values(record)
        # Before there were curricula every run had this one.
        values.setdefault("curriculum", {NAME_FIELDS["curriculum"]: "uniform"})
        if set(NAME_FIELDS) <= set(values):  # otherwise it is no record at all, which is refused below
            _check_format(record, values.pop("format", None))
        # What was permitted once, or by somebody else, is not permitted now.
        for name in PERMISSIONS:
            values.pop(name, None)

        # The names in the record choose the classes of its sections; merging checks each option and its type.
        chosen = {
            group: copy.deepcopy(schemas()[group][values[group][field]])
            for group, field in NAME_FIELDS.items()
        }
        typed = OmegaConf.merge(OmegaConf.structured(root(**chosen)), values)
    except OptionError:
        raise
    except (OmegaConfBaseException, yaml.YAMLError, OSError, LookupError, TypeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        if key := getattr(error, "full_key", None):
            first = f"{key}: {first}"
        raise OptionError(
            f"{record} cannot be read as the config of a run: {type(error).__name__}: {first}."
        ) from error
    assert isinstance(typed, DictConfig)
    return typed


class _PlainLoader(yaml.SafeLoader):
    """Reads what `yaml.safe_dump` writes of plain values, without aliases: a few can stand for millions."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name), which no record has")
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - yaml's name
        if self.flow_level > MOST_BRACKETS:
            raise yaml.YAMLError("its brackets are too deep")
        super().fetch_flow_collection_start(TokenClass)


def _plain_values(record: Path) -> dict[str, Any]:
    """The values in a record, none of which stands for another one or for something outside."""
    if record.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    loader = _PlainLoader(record.read_bytes())
    try:
        values = loader.get_single_data()
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    finally:
        loader.dispose()
    if not isinstance(values, dict):
        raise TypeError("it holds no options")
    for name, text in _texts(values):
        if "${" in text:
            raise ValueError(f"{name} is {text!r}: a record is not filled in, so write the value itself")
    return values


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name, text) of each text in nested values, names of options too."""
    if isinstance(value, str):
        yield name, value
    parts: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield f"{name}.{key}".lstrip("."), str(key)
        yield from _texts(part, f"{name}.{key}".lstrip("."))


def check_unchanged(run_dir: Path, record: DictConfig, may_change: Sequence[str]) -> None:
    """Refuse a record that was edited: the newest checkpoint knows the options that it was written with."""
    written = newest_facts(run_dir / CHECKPOINTS).get("config")
    if not isinstance(written, dict):  # there is no checkpoint yet, or one of before they knew it
        return
    for name in option_names(record):
        before: Any = written
        for part in name.split("."):
            before = before.get(part, _NOWHERE) if isinstance(before, dict) else _NOWHERE
        now = _plain_of(record, name)
        if before is not _NOWHERE and now != before and not is_among(name, may_change):
            raise OptionError(
                f"{run_dir / RECORD} has {name}={shown(now)}, and the run was trained with "
                f"{name}={shown(before)}: put that back, or start a new run."
            )


def _plain_of(config: DictConfig, name: str) -> Any:
    """The value of one option in the types of JSON."""
    section = name.partition(".")[0]
    found: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, section), enum_to_str=True)
    for part in name.split("."):
        found = found[part]
    return found


_NOWHERE = object()


def is_among(name: str, entries: Sequence[str]) -> bool:
    """Whether an option is one of these, or in one of these sections, which have a dot at their end."""
    return any(name == entry or (entry.endswith(".") and name.startswith(entry)) for entry in entries)


def _check_format(record: Path, number: object) -> None:
    """Refuse a run folder of another format: its names mean something else, or are not known."""
    if number is None:
        raise OptionError(
            f"{record} was written by an older version of Retrial: the last commit that reads it is b8605dc."
        )
    if number != FORMAT:
        raise OptionError(f"{record} has format {number}, and this version of Retrial reads format {FORMAT}.")


def _why_not(run_dir: Path) -> str:
    """Why a folder is no run folder, with the one that may be meant."""
    if not run_dir.exists():
        others = [file.parent.name for file in run_dir.parent.glob(f"*/{RECORD}")]
        near = difflib.get_close_matches(run_dir.name, others, n=1, cutoff=0.5)
        if near:
            return f"it does not exist. Did you mean {str(run_dir.parent / near[0])!r}?"
        return "it does not exist."
    if run_dir.name == HYDRAS:
        return f"it is Hydra's part of one. Did you mean {os.path.dirname(run_dir.absolute())!r}?"
    if (run_dir / CHECKPOINTS).is_dir():
        return f"it has checkpoints but no {RECORD}, without which nobody knows what they are: bring it back."
    jobs = sorted(file.parent.name for file in run_dir.glob(f"*/{RECORD}") if file.parent.name != HYDRAS)
    if jobs:
        first = [*jobs[:5], "..."] if len(jobs) > 5 else jobs
        return f"it holds runs ({', '.join(first)}): name one of them."
    return f"it has no {RECORD}."

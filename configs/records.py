"""The typed config that a run folder records.

The folder may come from somebody else, and it may have been edited by hand.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.schema import NAME_FIELDS, root, schemas
from configs.values import option_names
from policies.run.config import CHECKPOINTS, RECORD, read_record
from utils.checkpoint import newest_facts
from utils.disk.own_files import check_run_folder
from utils.options import OptionError, shown

# The folder in which Hydra records what it composed, for itself.
HYDRAS = ".hydra"


def recorded(run_dir: Path, mode: str, *, allow_links: bool = False) -> DictConfig:
    """The typed config that a run folder records; the folder is refused if it has links."""
    check_run_folder(run_dir, allow_links=allow_links)
    record = run_dir / RECORD
    if run_dir.name == HYDRAS or not record.is_file():
        raise OptionError(f"{mode}={run_dir} is not a run folder: {_why_not(run_dir)}")
    values = read_record(record)
    # Before there were curricula and collectors every run had these.
    for group, name in (("curriculum", "uniform"), ("collector", "local")):
        values.setdefault(group, {NAME_FIELDS[group]: name})
    try:
        # The names in the record choose the classes of its sections; merging checks each option and its type.
        chosen = {
            group: copy.deepcopy(schemas()[group][values[group][field]])
            for group, field in NAME_FIELDS.items()
        }
        typed = OmegaConf.merge(OmegaConf.structured(root(**chosen)), values)
    except (OmegaConfBaseException, LookupError, TypeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        if key := getattr(error, "full_key", None):
            first = f"{key}: {first}"
        raise OptionError(
            f"{record} cannot be read as the config of a run: {type(error).__name__}: {first}."
        ) from error
    assert isinstance(typed, DictConfig)
    return typed


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
    """Whether an option is one of these, or in one of these sections, which have a dot at their end.

    A `*` stands for one name between dots.
    """
    return any(
        re.match(re.escape(entry).replace(r"\*", "[^.]+") + ("" if entry.endswith(".") else r"\Z"), name)
        for entry in entries
    )


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

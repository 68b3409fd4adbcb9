"""Runs on disk: the config that a run folder records, and what may change when it is resumed or evaluated."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.compose import Composer, checked
from configs.schema import EXPERIMENT, NAME_FIELDS, root, schemas
from configs.values import assign, option_names, shown
from envs.base import TaskFamily
from policies.run.config import FORMAT, RECORD, Config
from utils.options import OptionError, nearest

TOTAL = "train.n_env_steps_total"

# For each way to continue: options, or sections with a dot at the end, that may differ from the record.
MAY_CHANGE = {
    "resume": (
        "num_parallel_workers",
        "backend.",
        TOTAL,
        "train.replay_device",
        "checkpoint_every",
        "profile",
        "wandb.mode",
    ),
    "evaluate": ("num_parallel_workers", "backend.", "evaluation.", "device", "profile", "wandb.mode"),
}


def load_run(
    run_dir: Path | str, words: Sequence[str] = (), *, mode: str = "evaluate"
) -> tuple[Config, Path]:
    """The checked config of a run on disk, changed by these words, and the folder of the run."""
    if mode not in MAY_CHANGE:
        raise OptionError(f"mode={mode!r} is not known.{nearest(mode, list(MAY_CHANGE))}")
    with Composer() as composer:
        run = continued(composer, mode, composer.parse([f"{mode}={run_dir}", *words]))
        return run.config, run.run_dir


def recorded(run_dir: Path, mode: str) -> DictConfig:
    """The typed config that a run folder records."""
    record = run_dir / RECORD
    if not record.is_file():
        raise OptionError(f"{mode}={run_dir} is not a run folder: {_why_not(run_dir)}")
    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(record))
        if set(NAME_FIELDS) <= set(values):  # otherwise it is no record at all, which is refused below
            _check_format(record, values.pop("format", None))

        # The names in the record choose the classes of its sections; merging checks each option and its type.
        chosen = {
            group: copy.deepcopy(schemas()[group][values[group][field]])
            for group, field in NAME_FIELDS.items()
        }
        typed = OmegaConf.merge(OmegaConf.structured(root(**chosen)), values)
    except OptionError:
        raise
    except (OmegaConfBaseException, yaml.YAMLError, OSError, KeyError, TypeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise OptionError(
            f"{record} cannot be read as the config of a run: {type(error).__name__}: {first}."
        ) from error
    assert isinstance(typed, DictConfig)
    return typed


@dataclass(frozen=True)
class RecordedRun:
    """A run on disk that is to go on or to be evaluated."""

    # Its recorded config, with what the command line changes.
    config: Config
    # Its family, which the check of the config built.
    family: TaskFamily
    run_dir: Path


def continued(composer: Composer, mode: str, overrides: Sequence[Override]) -> RecordedRun:
    """A run to resume or to evaluate, changed by the command line where it may change."""
    given = next(override for override in overrides if override.key_or_group == mode)
    if not str(given.value()).strip():
        raise OptionError(f"{mode}= needs the folder of a run: {mode}=outputs/...")
    run_dir = Path(str(given.value())).expanduser()
    old = recorded(run_dir, mode)
    new = copy.deepcopy(old)

    # As in a new run: a choice is applied first, then the options of it, in whatever order they were typed.
    for override in sorted(overrides, key=lambda one: one.key_or_group not in NAME_FIELDS):
        if override.key_or_group == mode:
            continue
        if override.is_sweep_override():
            raise OptionError(f"{override.input_line} gives several values, and {mode}= is one run.")
        if override.key_or_group in (*NAME_FIELDS, EXPERIMENT) and override.package is None:
            _choose(composer, new, override, mode)
        else:
            assign(new, override)

    # What is different now must be something that may change.
    _check_changes(old, new, mode)
    new.resume = new.evaluate = None
    config, family = checked(new, learns=mode == "resume")
    return RecordedRun(config, family, run_dir.absolute())


def _choose(composer: Composer, new: DictConfig, override: Override, mode: str) -> None:
    """Another backend may be chosen; every other choice may only be repeated."""
    group = override.key_or_group
    if group == EXPERIMENT:
        raise OptionError(
            f"{override.input_line} cannot be given with {mode}=: the run has its options already."
        )
    chosen = composer.dict_config([override])[group]
    field = NAME_FIELDS[group]
    if group == "backend":
        new.backend = chosen
    elif chosen[field] != new[group][field]:
        present = shown(new[group][field])
        raise OptionError(f"{override.input_line} cannot change with {mode}=: the run has {group}={present}.")


def _check_changes(old: DictConfig, new: DictConfig, mode: str) -> None:
    """Refuse the first option that differs and must not."""
    allowed = MAY_CHANGE[mode]
    for name in option_names(new):
        before, after = OmegaConf.select(old, name), OmegaConf.select(new, name)
        if before == after or name == mode:
            continue
        if not any(name == entry or (entry.endswith(".") and name.startswith(entry)) for entry in allowed):
            may = re.sub(r"\.(?=,|$)", ".*", ", ".join(allowed))
            raise OptionError(
                f"{name}={shown(after)} cannot change with {mode}=: the run has {name}={shown(before)}. "
                f"What may change: {may}."
            )
        if name == TOTAL and after < before:
            raise OptionError(
                f"{name}={after} is less than the {before} env steps that the run was started for; "
                "a resume may only add to them."
            )


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
    jobs = sorted(file.parent.name for file in run_dir.glob(f"*/{RECORD}"))
    if jobs:
        first = [*jobs[:5], "..."] if len(jobs) > 5 else jobs
        return f"it holds runs ({', '.join(first)}): name one of them."
    return f"it has no {RECORD}."

"""Runs on disk: what may change when a run is resumed or evaluated."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from configs.agent_files import agent_file, unpacked
from configs.compose import Composer, checked, without_hydra
from configs.records import check_unchanged, is_among, recorded
from configs.schema import EXPERIMENT, NAME_FIELDS
from configs.values import assign, option_names
from envs.base import TaskFamily
from policies.run.config import CHECKPOINTS, PERMISSIONS, RECORD, Config
from policies.run.sizes import check_same_spaces
from utils.checkpoint import CheckpointStore
from utils.options import OptionError, nearest, shown
from utils.processes.imports import imports_from_elsewhere

TOTAL = "train.n_env_steps_total"

# For each way to continue: options, or sections with a dot at the end, that may differ from the record.
MAY_CHANGE = {
    "resume": (
        "num_parallel_workers",
        "backend.",
        "collector.address",
        "collector.timeout_s",
        TOTAL,
        "train.replay_device",
        "checkpoint_every",
        "profile",
        "loggers",
        "wandb.mode",
        "wandb.artifact",
        # The same servers may be found at another address, as those that are started anew are.
        "env.urls",
        "env.parts.*.urls",
        *PERMISSIONS,
    ),
    "evaluate": (
        "env.",
        "num_parallel_workers",
        "backend.",
        "evaluation.",
        "device",
        "profile",
        "loggers",
        "wandb.",
        "allow_links",
    ),
}
# Where each way to continue writes, and Hydra's options that choose a folder for new runs.
WRITES_INTO = {
    "resume": "A run is resumed in its own folder",
    "evaluate": (
        "An evaluation has no folder of its own choice, since it writes into that of its run, or for an "
        "agent's file into a new one below outputs/agents"
    ),
}
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
# The tasks that a run was trained on are what they are, so their number is no option of an evaluation.
FIXED = ("env.num_train_tasks",)


def load_run(
    run_dir: Path | str, words: Sequence[str] = (), *, mode: str = "evaluate"
) -> tuple[Config, Path]:
    """The checked config of a run on disk, changed by these words, and the folder of the run."""
    if mode not in MAY_CHANGE:
        raise OptionError(f"mode={mode!r} is not known.{nearest(mode, list(MAY_CHANGE))}")
    with Composer() as composer:
        run = continued(composer, mode, composer.parse([f"{mode}={run_dir}", *words]))
        return run.config, run.run_dir


def run_folders(given: str) -> list[Path]:
    """The folders that `evaluate=` names: a run, several with commas between them, or all runs of a sweep.

    In `multirun/AntDir/0,1,2` what follows a comma stands beside what was before it; brackets around them, as
    `report=` has, change nothing. For an agent's file a folder is made.
    """
    folder = Path(given).expanduser()
    if (folder / RECORD).is_file():
        return [folder]
    if folder.is_dir():
        jobs = [record.parent for record in folder.glob(f"*/{RECORD}")]
        # Jobs are numbered: 10 comes after 9.
        return sorted(jobs, key=lambda job: (len(job.name), job.name)) or [folder]
    if given.startswith("[") and given.endswith("]"):
        given = given[1:-1]
    first, *others = (Path(part.strip()).expanduser() for part in given.split(","))
    beside = [other if len(other.parts) > 1 else first.parent / other for other in others]
    named = list(dict.fromkeys([first, *beside]))
    files = [agent_file(one) for one in named]
    return [one if file is None else unpacked(file) for one, file in zip(named, files, strict=True)]


@dataclass(frozen=True)
class RecordedRun:
    """A run on disk that is to go on or to be evaluated."""

    # Its recorded config, with what the command line changes.
    config: Config
    # Its family, which the check of the config built.
    family: TaskFamily
    run_dir: Path


class Runs(Protocol):
    """Acts with a learner for a run; `SystemExit` where the run could not go on."""

    def __call__(self, act: Any, config: Any, family: Any, run_dir: Path, /, **how: Any) -> float: ...


def evaluated(composer: Composer, overrides: Sequence[Override]) -> list[RecordedRun]:
    """The runs to evaluate, all changed by the same command line."""
    _check_words("evaluate", overrides)  # before a folder is made for an agent's file
    folders = run_folders(_folder_of("evaluate", overrides))
    return [continued(composer, "evaluate", overrides, folder) for folder in folders]


def _folder_of(mode: str, overrides: Sequence[Override]) -> str:
    """What the command line names as the folder of a run."""
    given = next(override for override in overrides if override.key_or_group == mode)
    folder = str(given.value()).strip()
    if not folder:
        raise OptionError(f"{mode}= needs the folder of a run: {mode}=outputs/...")
    return folder


def _check_words(mode: str, overrides: Sequence[Override]) -> None:
    """Refuse what no run on disk takes: another folder, and a number where a file of tasks is named."""
    for override in overrides:
        name, word, value = override.key_or_group, override.input_line, str(override.value())
        if name in FOLDERS:
            raise OptionError(f"{WRITES_INTO[mode]}: leave out {word}.")
        if name == "evaluation.tasks" and value.isdecimal() and not Path(value).exists():
            raise OptionError(f"{word} would be a file of tasks: their number is env.num_eval_tasks={value}.")


def continued(
    composer: Composer, mode: str, overrides: Sequence[Override], folder: Path | None = None
) -> RecordedRun:
    """A run to resume or to evaluate, changed by the command line where it may change.

    Its folder is that of the command line, unless another one is given.
    """
    _check_words(mode, overrides)
    run_dir = folder or Path(_folder_of(mode, overrides)).expanduser()
    permitted = any(one.key_or_group == "allow_links" and one.value() is True for one in overrides)
    old = recorded(run_dir, mode, allow_links=permitted)
    check_unchanged(run_dir, old, MAY_CHANGE["resume"])
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
    with imports_from_elsewhere(run_dir):
        config, family = checked(new, learns=mode == "resume")
        if new.env != old.env:
            trained = OmegaConf.to_object(old)
            assert isinstance(trained, Config)
            check_same_spaces(trained, config, family)
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


def found_again(composed: DictConfig, folder: Path) -> RecordedRun | None:
    """The run that a folder holds already, if it is the one that a config makes; another one is refused.

    It goes on with what the config changes, where that may change. None where no run has a checkpoint there.
    """
    if not CheckpointStore(folder / CHECKPOINTS).has_any:
        return None
    old = recorded(folder, "resume", allow_links=composed.allow_links)
    check_unchanged(folder, old, MAY_CHANGE["resume"])
    new = without_hydra(composed)
    name = _forbidden_change(old, new, "resume")
    if name is not None:
        before, after = (shown(OmegaConf.select(one, name)) for one in (old, new))
        raise OptionError(
            f"{folder} holds another run, with {name}={before}, and this one has {name}={after}: "
            f"take another folder, or resume={folder} goes on with the other."
        )
    config, family = checked(new)
    return RecordedRun(config, family, folder.absolute())


def _check_changes(old: DictConfig, new: DictConfig, mode: str) -> None:
    """Refuse the first option that differs and must not."""
    name = _forbidden_change(old, new, mode)
    if name is None:
        return
    before, after = OmegaConf.select(old, name), OmegaConf.select(new, name)
    if name == TOTAL and mode == "resume":
        raise OptionError(
            f"{name}={after} is less than the {before} env steps that the run was started for; "
            "a resume may only add to them."
        )
    may = re.sub(r"\.(?=,|$)", ".*", ", ".join(MAY_CHANGE[mode]))
    may = may.replace("env.*", f"env.* (but {', '.join(FIXED)})")
    raise OptionError(
        f"{name}={shown(after)} cannot change with {mode}=: the run has {name}={shown(before)}. "
        f"What may change: {may}."
    )


def _forbidden_change(old: DictConfig, new: DictConfig, mode: str) -> str | None:
    """The first option that differs and must not, or nothing."""
    for name in option_names(new):
        before, after = OmegaConf.select(old, name), OmegaConf.select(new, name)
        if before == after or name == mode:
            continue
        if name in FIXED or not is_among(name, MAY_CHANGE[mode]) or (name == TOTAL and after < before):
            return name
    return None

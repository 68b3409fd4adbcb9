"""The jobs of a sweep, all checked before the first one starts, in one folder whichever options they have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from configs.compose import Composer, checked
from configs.help import also_changed
from configs.launch import folder_named, refuse_sweep_folder
from configs.runs import found_again
from configs.validation import notes
from utils.disk.own_files import check_can_be_made, check_run_folder
from utils.machine import available_cores
from utils.options import OptionError

SWEEP_FOLDER = "hydra.sweep.dir"
# In the name of the folder, what jobs of several environments have in place of the environment.
SEVERAL = "several"


@dataclass(frozen=True)
class Job:
    """One job of a sweep."""

    number: int
    # What was typed for it, without Hydra's own options.
    words: str
    # None where only Hydra can tell.
    folder: Path | None
    # The env steps that its run is to train for.
    total: int


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is going to do."""

    # None where only Hydra can tell, or where jobs have folders in several places.
    folder: Path | None
    # Of another sweeper than Hydra's own nobody knows them before.
    jobs: tuple[Job, ...]
    notes: tuple[str, ...]
    # How many jobs run on this machine at the same time.
    at_once: int = 1


def plan_sweep(composer: Composer, overrides: Sequence[Override]) -> SweepPlan:
    """Check every job; a mistake in one of them is an `OptionError`, and so is a folder of something else.

    A job whose folder holds the same run already will go on with it.
    """
    listed = composer.jobs(overrides)
    other = any(one.key_or_group == "hydra/sweeper" and one.value() != "basic" for one in overrides)
    if other:
        # Only that sweeper knows what it will try: the options that it leaves alone are checked.
        listed = iter([[override for override in overrides if not override.is_sweep_override()]])
    all_composed: list[DictConfig] = []
    notes_of_jobs: list[list[str]] = []
    brought: dict[str, None] = {}  # each sentence once, whichever jobs it is about
    for number, job in enumerate(listed):
        composed = composer.dict_config(job)
        config = checked(composed)[0]
        notes_of_jobs.append(notes(config, job))
        brought |= dict.fromkeys(also_changed(composer, config, job))
        with read_write(composed), open_dict(composed):
            composed.hydra.job.num = number
        all_composed.append(composed)
    if not all_composed:
        raise OptionError("There is nothing to run: an option of the sweep gives no values.")
    # Of options that change nothing, those are told that do so in all jobs: one may be for some jobs only.
    common = [note for note in notes_of_jobs[0] if all(note in others for others in notes_of_jobs)]
    folder, jobs = _placed(all_composed, numbered=not other)
    at_once = _at_once(all_composed[0].hydra.launcher, len(jobs))
    return SweepPlan(folder, jobs, (*brought, *common), at_once)


def _at_once(launcher: DictConfig, num_jobs: int) -> int:
    """How many jobs a launcher runs on this machine at the same time."""
    if launcher._target_.endswith("JoblibLauncher"):
        # As joblib counts: -1 takes all cores, -2 all but one.
        asked = launcher.n_jobs if launcher.n_jobs > 0 else available_cores() + 1 + launcher.n_jobs
        return max(1, min(asked, num_jobs or asked))
    return max(1, num_jobs) if launcher._target_.endswith("submitit_launcher.LocalLauncher") else 1


def _placed(all_composed: Sequence[DictConfig], *, numbered: bool) -> tuple[Path | None, tuple[Job, ...]]:
    """The folder of the sweep, and the jobs with theirs, all of which a sweep may write into.

    Hydra writes there before a job can look at its own folder.
    """
    places: list[Path | None] = []
    for composed in all_composed:
        OmegaConf.copy_cache(all_composed[0], composed)  # the time in the names of folders
        places.append(folder_named(composed, SWEEP_FOLDER))
    folder = _common(places)
    jobs: list[Job] = []
    for composed, place in zip(all_composed, places, strict=True):
        if (beside := folder or place) is not None:
            refuse_sweep_folder(beside, allow_links=composed.allow_links)
        own = folder_named(composed, "hydra.sweep.subdir", beside=beside) if numbered and beside else None
        if own is not None and beside is not None:
            _check_inside(own, beside)
            check_can_be_made(own)
            check_run_folder(own, allow_links=composed.allow_links)
            found_again(composed, own)
        words = " ".join(composed.hydra.overrides.task)
        jobs.append(Job(composed.hydra.job.num, words, own, composed.train.n_env_steps_total))
    return folder, tuple(jobs) if numbered else ()


def _check_inside(own: Path, sweep: Path) -> None:
    """Refuse the folder of a job outside of the sweep's, where neither a report nor a resume would look."""
    if not Path(os.path.normpath(own)).is_relative_to(os.path.normpath(sweep)):
        raise OptionError(
            f"hydra.sweep.subdir leads to {own}, out of the folder of the sweep, {sweep}: let it be a name "
            "in there, such as ${hydra.job.num}."
        )


def _common(places: Sequence[Path | None]) -> Path | None:
    """The one folder for jobs that Hydra would place in these, or None.

    `multirun/Wind/TIME` and `multirun/CartPole/TIME` become `multirun/several/TIME`, or no report would find
    the runs together.
    """
    first = places[0]
    if first is None or all(place == first for place in places):
        return first
    known = [place for place in places if place is not None]
    alike = len(known) == len(places) and {(one.name, one.parent.parent) for one in known}
    return first.parent.parent / SEVERAL / first.name if alike and len(alike) == 1 else None

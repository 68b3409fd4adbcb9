"""The runs of a search, one after the other: drawn, made, followed, and told to the study."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from configs.compose import checked
from configs.hydra_private import run_composed
from configs.runs import Runs, found_again
from configs.search.command import Objective, SearchCommand
from configs.search.results import conclude, write_tables
from configs.search.space import words_of
from configs.search.study import OpenRun, Study
from configs.sweep.job import has_finished
from policies.evaluation.table import STOCHASTIC, curves_of
from policies.learner import Learner
from policies.run.context import RunHost
from policies.run.hardware import BACKENDS_FILE
from utils.console import Console
from utils.logger import METRICS, STEP_KEY, StopRun, read_metrics
from utils.options import OptionError


def run_search(command: SearchCommand, run_with: Runs, *, failed: int) -> tuple[str, int]:
    """Make runs until the study has its number, or the hours are over: (what to show, the exit code).

    A run that ends with the exit code `failed` does not end the search.
    """
    begun, options = time.monotonic(), command.options
    command.claim()
    study = Study(command.folder, command.space, seed=options.seed, prune=options.prune)
    exit_code = 0
    while options.hours is None or time.monotonic() - begun < options.hours * 3600:
        run = study.next_run(options.most)
        if run is None:
            break
        Console().message(f"\n{command.folder / run.name}: {' '.join(words_of(run.values))}")
        with run.lock:
            if not _make(command, run, run_with, failed):
                exit_code = failed
        write_tables(command, study.runs())
    return conclude(command, study.runs()), exit_code


def _make(command: SearchCommand, run: OpenRun, run_with: Runs, failed: int) -> bool:
    """Make one run and tell the study how it has ended; returns whether it could be made."""
    folder = command.folder / run.name
    try:
        composed = command.compose(run.values, run.name)
        curve = Following(run, command)
        _train_in(folder, composed, run_with, RunHost(run.lock, command.folder / BACKENDS_FILE, (curve,)))
    except OptionError as mistake:  # ends that can be had each by itself may be a contradiction together
        Console().message(str(mistake))
        run.fail(str(mistake))
        return False
    except SystemExit as end:
        if end.code != failed:
            raise  # a signal: the run goes on when the search is typed again
        run.fail(" ".join(str(end.__cause__ or end).split()))
        return False
    except Exception as error:
        run.fail(f"{type(error).__name__}: {error}")
        raise
    if curve.has_stopped:
        run.prune()
    else:
        run.complete(curve.last)
    return True


def _train_in(folder: Path, composed: DictConfig, run_with: Runs, host: RunHost) -> None:
    """Make the run of a config in its folder, or go on with what is there."""
    found = found_again(composed, folder)
    if found is None:
        run_composed(composed, lambda made: run_with(_train, *checked(composed), made, host=host))
    elif not has_finished(folder, found.config.train.n_env_steps_total):
        run_with(_resume, found.config, found.family, folder, host=host)


def _train(learner: Learner) -> float:
    with suppress(StopRun):
        return learner.train()
    return math.nan


def _resume(learner: Learner) -> float:
    learner.load()
    return _train(learner)


class Following:
    """Tells the study the objective at each evaluation of a run, and stops a run that falls behind."""

    def __init__(self, run: OpenRun, command: SearchCommand) -> None:
        self.last = math.nan
        self.has_stopped = False
        self._run, self._objective = run, command.options.objective
        self._every = command.example.evaluation.every
        self._total = command.example.train.n_env_steps_total
        # What the process before this one has found in this run.
        for line in read_metrics(command.folder / run.name / METRICS):
            self._take(line[STEP_KEY], line)

    def log(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """Take the evaluation of a line, if it has one."""
        if self._take(env_steps, values) and env_steps < self._total and self._run.should_stop():
            self.has_stopped = True
            Console().message("stopped: the runs before it were better at this evaluation")
            raise StopRun

    def _take(self, env_steps: int, values: Mapping[str, Any]) -> bool:
        """Note the objective at an evaluation; returns whether there was one."""
        # The list that agents are judged by is the last one; a part of a list has a slash in its name.
        found = curves_of(values).items()
        curves = [curve for name, curve in found if "/" not in name and not name.endswith(STOCHASTIC)]
        if not curves:
            return False
        whole = self._objective is Objective.trial
        self.last = math.fsum(curves[-1]) if whole else curves[-1][-1]
        # Runs are compared at the same evaluation, whatever env steps their waves took beyond its time.
        self._run.report(env_steps // self._every, self.last)
        return True

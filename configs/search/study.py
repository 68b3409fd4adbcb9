"""The study of a search, kept by Optuna in a journal file that several processes may share.

What Optuna calls a trial is a run here. A run belongs to a folder, and a folder that its process has left
unfinished is handed on: Optuna then has two trials of that folder, of which the last counts.
"""

# Optuna is no part of the tested set.
# pyright: reportMissingImports=false
from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.search.space import Choice, Range, Space, Value
from utils.disk.own_files import replace_file
from utils.options import OptionError
from utils.run_lock import RunLock, RunLockError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, Trial

INSTALLED_BY = "pip install -c requirements.txt '.[search]'"
JOURNAL = "study.log"
OPTION = "search"
# How long another process may keep the study to itself while it draws its next settings.
CLAIM_SECONDS = 120.0
# Runs with settings at random, before the sampler has something to go by and the pruner to compare with.
STARTUP_RUNS = 10
STARTUP_CURVES = 4
# What is noted with a run: its folder in that of the study, and why it has failed.
_FOLDER, _WHY = "folder", "why"


def check_optuna() -> None:
    """Refuse a search where Optuna is missing, with the line that installs it."""
    if importlib.util.find_spec("optuna") is None:
        raise OptionError(f"{OPTION}= needs Optuna, which is not installed: {INSTALLED_BY}")


@dataclass(frozen=True)
class StudiedRun:
    """What the study knows of one run."""

    # Its folder in that of the study.
    name: str
    # running, waiting (to be gone on with), complete, pruned or failed.
    state: str
    values: Mapping[str, Value]
    # What is to be as high as possible, if the run is complete.
    objective: float | None
    # The objective at the evaluations of the run, by their number.
    curve: Mapping[int, float]
    why: str = ""


class OpenRun:
    """A run of the study that this process is making, with the lock of its folder."""

    def __init__(self, study: Study, trial: Trial, name: str, lock: RunLock) -> None:
        self.name, self.lock, self.values = name, lock, dict(trial.params)
        self._study, self._trial = study, trial
        self._reported: set[int] = set()

    def report(self, step: int, objective: float) -> None:
        """Note the objective at an evaluation, with which other runs are compared; NaN says nothing."""
        if step not in self._reported and math.isfinite(objective):
            self._reported.add(step)
            self._trial.report(objective, step)

    def should_stop(self) -> bool:
        """Whether this run is worse so far than the others were at the same evaluation."""
        return self._trial.should_prune()

    def complete(self, objective: float) -> None:
        """The run has come to its end."""
        if math.isfinite(objective):
            self._study.tell(self._trial, "COMPLETE", objective)
        else:
            self.fail("its last evaluation gave no return")

    def prune(self) -> None:
        """The run was stopped, since others were better."""
        self._study.tell(self._trial, "PRUNED")

    def fail(self, why: str) -> None:
        """The run could not go on."""
        self._trial.set_user_attr(_WHY, why)
        self._study.tell(self._trial, "FAIL")


class Study:
    """The runs of one search, those of other processes included."""

    def __init__(self, folder: Path, space: Space, *, seed: int, prune: bool) -> None:
        """Open the study of a folder, or begin it there. `seed` is that of the settings that are drawn."""
        import optuna  # here, so that who searches nothing neither needs nor loads it
        from optuna.pruners import MedianPruner, NopPruner
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._folder, self._seed = folder, seed
        self._distributions = {name: _distribution(dimension) for name, dimension in space.items()}
        with self._claimed():
            lock = JournalFileOpenLock(str(folder / JOURNAL))
            lock.acquire()
            try:
                _mend(folder / JOURNAL)
            finally:
                lock.release()
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(folder / JOURNAL), lock)),
                study_name=OPTION,
                load_if_exists=True,
                direction="maximize",
                pruner=MedianPruner(n_startup_trials=STARTUP_CURVES) if prune else NopPruner(),
            )

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """While settings are drawn, no other process may draw any, or give up a run."""
        deadline = time.monotonic() + CLAIM_SECONDS
        while True:
            try:
                lock = RunLock(self._folder, OPTION)
                break
            except RunLockError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        with lock:
            yield

    def next_run(self, most: int | None) -> OpenRun | None:
        """The next run to make, one that its process has left or a new one; None if there are `most`."""
        from optuna.samplers import TPESampler

        with self._claimed():
            self._take_over()
            runs = self.runs()
            if not any(run.state == "waiting" for run in runs) and most is not None and len(runs) >= most:
                return None
            # The stream of a run depends on its number alone, so a search that was stopped and goes on draws
            # what it would have drawn.
            seed = int(np.random.SeedSequence([self._seed, len(runs)]).generate_state(1)[0])
            self._study.sampler = TPESampler(n_startup_trials=STARTUP_RUNS, seed=seed)
            trial = self._study.ask(self._distributions)
            name = trial.user_attrs.get(_FOLDER)
            if name is None:
                name = str(len(runs))
                trial.set_user_attr(_FOLDER, name)
            return OpenRun(self, trial, name, RunLock(self._folder / name, OPTION))

    def _take_over(self) -> None:
        """Queue the runs that nobody makes any more: the lock of their folder is free."""
        trials = self._study.get_trials(deepcopy=False)
        waiting = {trial.user_attrs.get(_FOLDER) for trial in trials if trial.state.name == "WAITING"}
        for trial in trials:
            name = trial.user_attrs.get(_FOLDER)
            if trial.state.name != "RUNNING":
                continue
            if name is not None:
                try:
                    RunLock(self._folder / name, OPTION).release()
                except RunLockError:  # somebody is making it
                    continue
                # First queued and then given up, so that a process that ends in between loses nothing.
                if name not in waiting:
                    self._study.enqueue_trial(trial.params, user_attrs={_FOLDER: name})
            self.tell(trial.number, "FAIL")

    def tell(self, trial: Trial | int, state: str, objective: float | None = None) -> None:
        """Note how a run has ended."""
        from optuna.trial import TrialState

        self._study.tell(trial, objective, TrialState[state])

    def runs(self) -> list[StudiedRun]:
        """All runs, in the order of their folders; of one that was handed on, what it is now."""
        last: dict[str, FrozenTrial] = {}
        for trial in self._study.get_trials(deepcopy=False):
            if (name := trial.user_attrs.get(_FOLDER)) is not None:  # else its process ended as it began
                last[name] = trial
        return [_studied(name, trial) for name, trial in sorted(last.items(), key=lambda one: int(one[0]))]


def _studied(name: str, trial: FrozenTrial) -> StudiedRun:
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "WAITING": "waiting"}
    # Optuna keeps the settings of a run that waits under another name until it is asked for.
    params = trial.params or trial.system_attrs.get("fixed_params", {})
    objective = trial.value if trial.state.name == "COMPLETE" else None
    state, why = states.get(trial.state.name, "running"), trial.user_attrs.get(_WHY, "")
    return StudiedRun(name, state, params, objective, trial.intermediate_values, why)


def _distribution(dimension: Range | Choice) -> BaseDistribution:
    """What Optuna calls the values of an option."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    step: Any = dimension.step
    if dimension.is_whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log, step=step or 1)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=step)


def _mend(journal: Path) -> None:
    """Cut off the line that a process was writing when it was killed: Optuna would append to it."""
    if not journal.is_file():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        replace_file(journal, content[:whole])

"""WavePlan: the trials that a wave may start, and the numbers that key all of their randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.parallel_env_manager import Start
from utils.seeding import Phase, Purpose, generator, trial_seed


@dataclass(frozen=True)
class WavePlan:
    """At most `most` trials, numbered from `first` on.

    A trial is known by (root, phase, number) alone: its task, the seed of its environment and the noise of
    its actions follow from them. So a trial is the same whichever slot plays it, and whatever is played
    beside it.
    """

    # The seed of the run.
    root: int
    phase: Phase
    # The number of the first trial.
    first: int
    # The most trials that may be started.
    most: int
    # [task_dim] the task of a trial, by its number. It is asked for when the trial starts.
    task: Callable[[int], NDArray[np.float64]]
    # Once the wave has taken so many env steps, it starts no further trial; None: it starts all of them.
    budget: int | None = None

    @classmethod
    def of_tasks(cls, root: int, phase: Phase, first: int, tasks: NDArray[np.float64]) -> WavePlan:
        """A plan that plays each of these tasks [n, task_dim] once, in their order."""
        # The number of a trial keys its randomness; its place in the list is counted from the first.
        return cls(root, phase, first, len(tasks), lambda number: tasks[number - first])

    def start(self, index: int) -> Start:
        """The task and the seed of the wave's trial `index`, counted from 0."""
        # Three streams belong to a trial: its task, its environment and its actions. None of them moves when
        # another one draws more or less.
        number = self.first + index
        return Start(self.task(number), trial_seed(self.root, self.phase, number))

    def action_rng(self, index: int) -> np.random.Generator:
        """The stream from which the action noise of the wave's trial `index` is drawn."""
        return generator(self.root, self.phase, Purpose.ACTION, self.first + index)

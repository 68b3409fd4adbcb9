"""Groups of tasks that a curriculum orders or compares: the parts of a mixture, or levels of difficulty."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from envs.base import TaskFamily
from policies.curriculum.base import TrainingTasks
from utils.seeding import Phase, generator

# Tasks from which the bounds of levels are taken where a run has no list of tasks.
SAMPLE = 1000
# Draws at once, and how often, until one falls into the group that is asked for.
DRAWS, MOST_TRIES = 16, 1000


def problems_of_groups(name: str, family: TaskFamily) -> Iterator[str]:
    """One sentence where the tasks of a family form no groups."""
    task = family.sample_tasks(np.random.default_rng(0), 1, "train")
    if not family.spec.parts and family.difficulty(task) is None:
        yield (
            f"curriculum={name} needs tasks that are known to be easier or harder, and those of "
            f"env={family.config.family} are not: use env=Mixture, whose parts are its groups, or a family "
            "with difficulty(task), such as env=GridNavi."
        )


class TaskGroups:
    """The groups of a run's training tasks, numbered from 0.

    They are the parts of the family in their order, or else levels of its difficulty, easy ones first, each
    with about as many tasks; equal difficulties are never torn apart, so there may be fewer levels.
    """

    def __init__(self, tasks: TrainingTasks, levels: int) -> None:
        self._tasks = tasks
        known = tasks.listed
        if tasks.family.spec.parts:
            self.names = tasks.family.spec.parts
        else:
            if known is None:
                known = tasks.family.sample_tasks(generator(tasks.seed, Phase.TASKS, 3), SAMPLE, "train")
            # The greatest difficulty of each level but the last.
            edges = np.quantile(self._difficulty(known), np.arange(1, levels) / levels, method="lower")
            self._edges = np.unique(edges[edges < self._difficulty(known).max()])
            self.names = tuple(f"level_{number + 1}" for number in range(len(self._edges) + 1))
        # The tasks of the list by group; none without a list.
        self._listed: list[NDArray[np.float64]] = []
        if tasks.listed is not None:
            group = self.of(tasks.listed)
            self._listed = [tasks.listed[group == number] for number in range(len(self.names))]

    def of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        """[n] the group of each task [n, task_dim]."""
        if self._tasks.family.spec.parts:
            return self._tasks.family.spec.parts_of(tasks)
        return np.searchsorted(self._edges, self._difficulty(tasks), side="left").astype(np.int64)

    def draw(self, rng: np.random.Generator, group: int) -> NDArray[np.float64]:
        """[task_dim] a task of this group, as likely as among all tasks of the group."""
        if self._listed and len(self._listed[group]):
            return self._listed[group][rng.integers(len(self._listed[group]))]
        # Without a list tasks are drawn until one is of the group; the family decides how likely each is.
        for _ in range(MOST_TRIES):
            drawn = self._tasks.family.sample_tasks(rng, DRAWS, "train")
            hits = np.flatnonzero(self.of(drawn) == group)
            if len(hits):
                return drawn[hits[0]]
        raise ValueError(f"No task of {self.names[group]} came up in {MOST_TRIES * DRAWS:,} draws.")

    def _difficulty(self, tasks: NDArray[np.float64]) -> NDArray[np.float64]:
        difficulty = self._tasks.family.difficulty(tasks)
        assert difficulty is not None, "problems_of_groups refuses this family"
        return difficulty

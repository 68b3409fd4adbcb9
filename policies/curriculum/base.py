"""The contract of a curriculum: what decides which task the next trial plays.

Trial number j plays `draw(j)`; when a wave is complete, `learn` sees what came of its trials, in the order of
their numbers. Between two waves nothing changes, so a draw is a function of the run's seed, of j, and of the
results of earlier waves: never of timing, of the backend, or of who played the trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.base import TaskFamily
from utils.options import option
from utils.seeding import Phase, Purpose, generator


@dataclass
class CurriculumConfig:
    """Options that every curriculum has; one adds its own in a subclass (`name` is its registry name)."""

    name: str = option("???", "the curriculum's name in the registry")


class TrialMeasure(Enum):
    """What tells how well a trial went, in its last episode; auto: success where the family knows it."""

    auto = "auto"
    success = "success"
    returns = "returns"


@dataclass(frozen=True)
class PlayedTrials:
    """What came of the trials of a wave, in the order of their numbers, without those that were given up."""

    # [n, task_dim] the task of each.
    tasks: NDArray[np.float64]
    # [n, k] of each episode.
    returns: NDArray[np.float64]
    successes: NDArray[np.bool_]
    # [n] the mean |GAE| of each trial, before the agent learns from it; None where nothing predicts values.
    surprise: NDArray[np.float64] | None = None

    def measured(self, measure: TrialMeasure, family: TaskFamily) -> NDArray[np.float64]:
        """[n] how well the last episode of each trial went."""
        if measure is TrialMeasure.success or (measure is TrialMeasure.auto and family.spec.success):
            return self.successes[:, -1].astype(np.float64)
        return self.returns[:, -1]


@dataclass(frozen=True)
class TrainingTasks:
    """The tasks that a run trains on, and the random stream of each trial."""

    family: TaskFamily
    # [n, task_dim] the list; None: a new task for every trial.
    listed: NDArray[np.float64] | None
    # The root of the run's streams.
    seed: int

    def uniform(self, number: int, phase: Phase = Phase.TRAIN) -> NDArray[np.float64]:
        """[task_dim] the task of a trial where nothing chooses: one of the list, or a new one."""
        rng = self.stream(number, phase)
        if self.listed is None:
            return self.family.sample_tasks(rng, 1, "train")[0]
        return self.listed[rng.integers(len(self.listed))]

    def stream(self, number: int, phase: Phase = Phase.TRAIN) -> np.random.Generator:
        """The stream from which the task of this trial is drawn."""
        return generator(self.seed, phase, Purpose.TASK, number)


class Curriculum(ABC):
    """Built as `cls(config, tasks)`; docs/curricula.md explains the contract with an example."""

    Config: ClassVar[type[CurriculumConfig]] = CurriculumConfig
    # Whether `learn` reads `PlayedTrials.surprise`, which costs a pass of the agent over the rows of a wave.
    reads_surprise: ClassVar[bool] = False

    def __init__(self, config: Any, tasks: TrainingTasks) -> None:
        self.config, self.tasks = config, tasks

    @classmethod
    def problems(cls, config: Any, family: TaskFamily) -> Iterator[str]:
        """One sentence for each reason why this curriculum cannot choose among the tasks of this family."""
        yield from ()

    @abstractmethod
    def draw(self, number: int) -> NDArray[np.float64]:
        """[task_dim] the task of this trial; it changes nothing, so it may be asked for again."""

    def learn(self, played: PlayedTrials) -> None:
        """Take in what came of a wave."""
        return

    def state_dict(self) -> dict[str, Any]:
        """What has been learned, as the types of JSON."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        return

    # -- what is shown ---------------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of tasks that it is reported by: the parts of the family, by default."""
        return self.tasks.family.spec.parts

    def group_of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        """[n] the group of each task [n, task_dim]."""
        return self.tasks.family.spec.parts_of(tasks)

    def metrics(self) -> dict[str, float]:
        """Numbers that tell what it does now."""
        return {}

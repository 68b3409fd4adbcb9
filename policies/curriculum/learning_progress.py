"""Learning progress: groups of tasks on which the agent has just become better, or worse, are played more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import TaskFamily
from policies.curriculum.base import Curriculum, CurriculumConfig, PlayedTrials, TrainingTasks, TrialMeasure
from policies.curriculum.task_groups import TaskGroups, problems_of_groups
from utils.options import option


@dataclass
class LearningProgressConfig(CurriculumConfig):
    """Options of learning_progress."""

    name: str = "learning_progress"
    levels: int = option(5, "levels of difficulty, where a family has no parts", low=2, high=50)
    measure: TrialMeasure = option(
        TrialMeasure.auto, "what progress is made in, in the last episode of trials"
    )
    fast: float = option(0.1, "the weight of a new trial in the fast running mean", above=0, high=1)
    slow: float = option(0.02, "the weight of a new trial in the slow running mean", above=0, high=1)
    explore: float = option(0.1, "the part of the trials that play any group, each as likely", low=0, high=1)


class LearningProgress(Curriculum):
    """Plays the groups in which most is learned now: neither what is mastered nor what is out of reach.

    The progress of a group (a part of the mixture, or a level of the family's difficulty) is the distance
    between a fast and a slow running mean of how its trials went. Progress downwards counts too, so what is
    forgotten comes back. The idea is that of Matiisen et al. (2017, arXiv:1707.00183); two running means
    stand in Kanitscheider et al. (2021, arXiv:2106.14876).
    """

    Config = LearningProgressConfig
    config: LearningProgressConfig

    def __init__(self, config: LearningProgressConfig, tasks: TrainingTasks) -> None:
        super().__init__(config, tasks)
        self._groups = TaskGroups(tasks, config.levels)
        count = len(self._groups.names)
        self._fast, self._slow = np.zeros(count), np.zeros(count)
        self._seen = np.zeros(count, np.bool_)

    @classmethod
    def problems(cls, config: LearningProgressConfig, family: TaskFamily) -> Iterator[str]:
        yield from problems_of_groups("learning_progress", family)
        if config.slow > config.fast:
            yield f"curriculum.slow={config.slow} is faster than curriculum.fast={config.fast}: lower it."

    @property
    def chances(self) -> NDArray[np.float64]:
        """[groups] how likely the next trial plays each."""
        progress = np.abs(self._fast - self._slow)
        even = np.full(len(progress), 1 / len(progress))
        if not progress.sum() > 0:
            return even
        return self.config.explore * even + (1 - self.config.explore) * progress / progress.sum()

    def draw(self, number: int) -> NDArray[np.float64]:
        rng = self.tasks.stream(number)
        # A uniform draw falls into the interval of a group.
        group = int(np.searchsorted(np.cumsum(self.chances)[:-1], rng.random(), side="right"))
        return self._groups.draw(rng, group)

    def learn(self, played: PlayedTrials) -> None:
        measured = played.measured(self.config.measure, self.tasks.family)
        for group, value in zip(self._groups.of(played.tasks).tolist(), measured.tolist(), strict=True):
            if not self._seen[group]:  # both means start at the first value: there is no progress yet
                self._seen[group] = True
                self._fast[group] = self._slow[group] = value
            self._fast[group] += self.config.fast * (value - self._fast[group])
            self._slow[group] += self.config.slow * (value - self._slow[group])

    def state_dict(self) -> dict[str, Any]:
        return {"fast": self._fast.tolist(), "slow": self._slow.tolist(), "seen": self._seen.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._fast, self._slow = np.array(state["fast"]), np.array(state["slow"])
        self._seen = np.array(state["seen"], np.bool_)

    @property
    def groups(self) -> tuple[str, ...]:
        return self._groups.names

    def group_of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._groups.of(tasks)

    def metrics(self) -> dict[str, float]:
        """How likely each group is."""
        return {
            f"chance/{name}": chance for name, chance in zip(self.groups, self.chances.tolist(), strict=True)
        }

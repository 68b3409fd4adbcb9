"""Stages: easy tasks first, and the next group once the agent does well on the present one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import TaskFamily
from policies.curriculum.base import Curriculum, CurriculumConfig, PlayedTrials, TrainingTasks, TrialMeasure
from policies.curriculum.task_groups import TaskGroups, problems_of_groups
from utils.options import nearest, option


@dataclass
class StagesConfig(CurriculumConfig):
    """Options of stages."""

    name: str = "stages"
    order: list[str] = option([], "parts of a mixture, easy ones first; []: in the order of env.parts")
    levels: int = option(3, "levels of difficulty, where a family has no parts", low=2, high=50)
    measure: TrialMeasure = option(
        TrialMeasure.auto, "what has to reach the threshold, in the last episode of trials"
    )
    threshold: float = option(0.8, "the mean over the last trials of a stage at which the next one begins")
    trials: int = option(50, "trials of the present stage that the mean is taken over", low=1)
    review: float = option(0.2, "the part of the trials that play tasks of earlier stages", low=0, high=0.9)


class Stages(Curriculum):
    """Plays the easiest tasks until it does well on them, then the next ones, and at last all of them.

    A stage plays the tasks of one group (a part of the mixture, or a level of the family's difficulty), and
    now and then those of earlier stages, which would be forgotten. It ends once the mean over its last trials
    reaches the threshold. After the last stage tasks are drawn as `uniform` draws them.
    """

    Config = StagesConfig
    config: StagesConfig

    def __init__(self, config: StagesConfig, tasks: TrainingTasks) -> None:
        super().__init__(config, tasks)
        self._groups = TaskGroups(tasks, config.levels)
        names = list(self._groups.names)
        self._order = [names.index(name) for name in config.order] or list(range(len(names)))
        self._stage = 0
        # How the last trials of the present stage went.
        self._recent: list[float] = []

    @classmethod
    def problems(cls, config: StagesConfig, family: TaskFamily) -> Iterator[str]:
        yield from problems_of_groups("stages", family)
        parts = family.spec.parts
        for name in config.order:
            if name not in parts:
                hint = nearest(name, parts) if parts else f" env={family.config.family} has no parts."
                yield f"curriculum.order: there is no part {name!r}.{hint}"
        if config.order and sorted(config.order) != sorted(parts):
            yield f"curriculum.order={config.order} should name each part once: {', '.join(parts)}."

    def draw(self, number: int) -> NDArray[np.float64]:
        if self._stage == len(self._order):
            return self.tasks.uniform(number)
        rng, place = self.tasks.stream(number), self._stage
        if self._stage and rng.random() < self.config.review:
            place = int(rng.integers(self._stage))
        return self._groups.draw(rng, self._order[place])

    def learn(self, played: PlayedTrials) -> None:
        measured = played.measured(self.config.measure, self.tasks.family)
        for group, value in zip(self._groups.of(played.tasks).tolist(), measured.tolist(), strict=True):
            if self._stage == len(self._order) or group != self._order[self._stage]:
                continue
            self._recent = [*self._recent, value][-self.config.trials :]
            if len(self._recent) == self.config.trials and np.mean(self._recent) >= self.config.threshold:
                self._stage, self._recent = self._stage + 1, []

    def state_dict(self) -> dict[str, Any]:
        return {"stage": self._stage, "recent": self._recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._stage, self._recent = int(state["stage"]), [float(value) for value in state["recent"]]

    @property
    def groups(self) -> tuple[str, ...]:
        return self._groups.names

    def group_of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        return self._groups.of(tasks)

    def metrics(self) -> dict[str, float]:
        """The stage from 1; one more than there are where all tasks are played."""
        return {"stage": self._stage + 1}

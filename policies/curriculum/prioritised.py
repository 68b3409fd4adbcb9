"""Prioritised: of a list, tasks on which most is left to learn are played again (prioritised level replay).

The rule is that of Jiang, Grefenstette and Rocktaschel (2021, arXiv:2010.03934), for a list of N tasks:

    a task that was never played    with chance 1 - (the part of the list that was played), each as likely
    one that was, task i            P(i) = (1 - rho) P_S(i) + rho P_C(i)
    by its score                    P_S(i) ~ (1 / rank of score i)^(1 / beta), the highest score first
    by its staleness                P_C(i) ~ trials since i was played last

The score of a task is that of its last trial: the mean |GAE| over the rows of the trial, which is the L1
error of the values against their lambda-returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import TaskFamily
from policies.curriculum.base import Curriculum, CurriculumConfig, PlayedTrials, TrainingTasks
from utils.options import option


@dataclass
class PrioritisedConfig(CurriculumConfig):
    """Options of prioritised; published as beta=0.1, which is for scores that change after each trial."""

    name: str = "prioritised"
    beta: float = option(1.0, "temperature of the ranks of scores: smaller plays high scores more", above=0)
    rho: float = option(0.1, "the part of the replays that is drawn by staleness", low=0, high=1)


class Prioritised(Curriculum):
    """Plays tasks of the list again by how much the agent was wrong about them (prioritised level replay).

    An algorithm without values of its own gives no GAE: the score is then how far the return of the trial was
    from that of the task's last trial, or at first from the mean of all tasks so far.
    """

    Config = PrioritisedConfig
    config: PrioritisedConfig
    reads_surprise = True

    def __init__(self, config: PrioritisedConfig, tasks: TrainingTasks) -> None:
        super().__init__(config, tasks)
        assert tasks.listed is not None, "problems() refuses a run without a list"
        # Tasks that stand in the list more than once are one.
        self._list = np.unique(tasks.listed, axis=0)
        self._places = {task.tobytes(): place for place, task in enumerate(self._list)}
        count = len(self._list)
        self._score, self._return = np.zeros(count), np.zeros(count)
        # The trials so far, and among them the last one of each task, from 1; 0: it was never played.
        self._trials, self._last = 0, np.zeros(count, np.int64)

    @classmethod
    def problems(cls, config: PrioritisedConfig, family: TaskFamily) -> Iterator[str]:
        if family.config.num_train_tasks is None:
            yield "curriculum=prioritised plays tasks of a list again: give one by env.num_train_tasks=100."

    @property
    def chances(self) -> NDArray[np.float64]:
        """[N] how likely each task is if one of those that were played is played again."""
        seen = self._last > 0
        # The rank of a task that was never played does not count; of equal scores the first is higher.
        order = np.argsort(np.where(seen, -self._score, np.inf), kind="stable")
        rank = np.empty(len(order))
        rank[order] = np.arange(1, len(order) + 1)
        by_score = np.where(seen, rank ** (-1 / self.config.beta), 0.0)
        by_staleness = np.where(seen, self._trials - self._last, 0).astype(np.float64)

        chances = by_score / by_score.sum()
        if by_staleness.any():
            chances = (1 - self.config.rho) * chances + self.config.rho * by_staleness / by_staleness.sum()
        return chances

    def draw(self, number: int) -> NDArray[np.float64]:
        rng, seen = self.tasks.stream(number), self._last > 0
        if rng.random() >= seen.mean():
            unseen = np.flatnonzero(~seen)
            return self._list[unseen[rng.integers(len(unseen))]]
        # A uniform draw falls into the interval of a task.
        upper = np.cumsum(self.chances)
        return self._list[np.searchsorted(upper, rng.random() * upper[-1], side="right")]

    def learn(self, played: PlayedTrials) -> None:
        returns = played.returns.sum(1)
        for trial, place in enumerate(self.group_of(played.tasks).tolist()):
            seen = self._last > 0
            if played.surprise is not None:
                self._score[place] = played.surprise[trial]
            elif seen.any():
                before = self._return[place] if seen[place] else self._return[seen].mean()
                self._score[place] = abs(returns[trial] - before)
            self._return[place] = returns[trial]
            self._trials += 1
            self._last[place] = self._trials

    def state_dict(self) -> dict[str, Any]:
        return {
            "score": self._score.tolist(),
            "return": self._return.tolist(),
            "last": self._last.tolist(),
            "trials": self._trials,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._score, self._return = np.array(state["score"]), np.array(state["return"])
        self._last, self._trials = np.array(state["last"], np.int64), int(state["trials"])

    @property
    def groups(self) -> tuple[str, ...]:
        """Every task of the list."""
        return tuple(f"task_{place}" for place in range(len(self._list)))

    def group_of(self, tasks: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.array([self._places[task.tobytes()] for task in tasks], np.int64)

    def metrics(self) -> dict[str, float]:
        """The part of the list that was played, and to how many equally likely tasks the replays amount."""
        seen = float((self._last > 0).mean())
        if not seen:
            return {"seen": 0.0}
        chances = self.chances[self.chances > 0]
        return {"seen": seen, "effective_tasks": float(np.exp(-(chances * np.log(chances)).sum()))}

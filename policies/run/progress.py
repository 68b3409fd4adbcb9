"""How far a run has come: the counters and the record of the running iteration, all of it plain data for a
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from policies.collection.wave import WaveResult

RECENT = 100


class Stage(StrEnum):
    """What comes next; a run can stop and resume before each."""

    random_pool = "random_pool"
    collect = "collect"
    update = "update"
    evaluate = "evaluate"


@dataclass
class Counters:
    """Everything that decides what a run does next, apart from tensors and the replay."""

    stage: Stage = Stage.random_pool
    iteration: int = 0
    env_steps: int = 0
    trials: int = 0
    """Trials collected with the policy: the next trial's number."""
    warmup_trials: int = 0
    episodes: int = 0
    updates: int = 0
    update_credit: float = 0.0
    """Updates earned and not yet started; a fraction is carried over."""
    updates_due: int = 0
    updates_in_record: int = 0
    next_evaluation: int = 0
    next_checkpoint: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    """What the line of metrics of this iteration has so far."""
    recent_returns: list[list[float]] = field(default_factory=list)
    """[up to 100][k] of the trials that *started* last."""
    recent_lengths: list[float] = field(default_factory=list)
    """[up to 100] env steps of an episode, on average over each of these trials."""

    def count(self, result: WaveResult, *, warmup: bool) -> None:
        """Take a wave in."""
        trials, episodes = result.returns.shape
        self.env_steps += result.env_steps
        self.episodes += trials * episodes
        if warmup:
            self.warmup_trials += trials
        else:
            self.trials += trials
        whole = ~result.dropped
        self.recent_returns = (self.recent_returns + result.returns[whole].tolist())[-RECENT:]
        self.recent_lengths = (self.recent_lengths + result.lengths[whole].mean(1).tolist())[-RECENT:]

    @property
    def mean_return_by_episode(self) -> list[float]:
        """[k] over the recent trials."""
        return np.mean(self.recent_returns, axis=0).tolist() if self.recent_returns else []

    def state_dict(self) -> dict[str, Any]:
        """Plain data; floats survive JSON exactly."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Counters:
        """The inverse."""
        return cls(**{**state, "stage": Stage(state["stage"])})


def by_episode(prefix: str, values: np.ndarray[Any, Any]) -> dict[str, float]:
    """{prefix_episode_1: ..., prefix_episode_k: ...} of a [k] array."""
    return {f"{prefix}_episode_{index + 1}": float(value) for index, value in enumerate(values)}

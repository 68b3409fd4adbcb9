"""Rollout: an episode as lists; and the numbers of many of them, under the names that scripts print."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Rollout:
    """One episode. Row t is an observation, the action that was chosen on it, and what came of it.

    The four lists are equally long: the observation behind the last action stands in `final_observation`,
    so that a value can be bootstrapped from an episode that was cut.
    """

    observations: list[Any]
    actions: list[Any]
    rewards: list[float]
    dones: list[bool]
    episode_return: float
    episode_length: int
    env_name: str
    final_observation: Any = None
    # How it ended. Cut by `max_steps`, it is truncated, and its last `done` is False.
    terminated: bool = False
    truncated: bool = False
    # What the last answer said besides.
    metadata: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    # The number of the episode among those of one call.
    index: int = 0
    # How often it was begun.
    attempts: int = 1
    # Seconds that passed in the environment and in the agent.
    env_s: float = 0.0
    agent_s: float = 0.0


@dataclass
class Failure:
    """An episode that did not come to its end, however often it was begun."""

    index: int
    env_name: str
    error: Exception

    @property
    def shown(self) -> tuple[int, str, str]:
        """(the number of the episode, its environment, what went wrong)."""
        return self.index, self.env_name, f"{type(self.error).__name__}: {self.error}"

    def told(self) -> Exception:
        """The error, which says whose it is."""
        return told_of(self.error, self.index, self.env_name)


def told_of(error: Exception, index: int, env_name: str) -> Exception:
    """The error, with a note of the episode that it ended, once."""
    note = f"in episode {index} of {env_name}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


@dataclass
class ParallelRolloutStats:
    """Numbers over rollouts; all 0 where there are none. The deviation is that of these returns (ddof 0)."""

    mean_return: float = 0.0
    std_return: float = 0.0
    min_return: float = 0.0
    max_return: float = 0.0
    mean_length: float = 0.0
    total_steps: int = 0
    num_episodes: int = 0
    # The mean return by the name of the environment.
    env_breakdown: dict[str, float] = field(default_factory=dict)
    # Episodes that are missing: (number, name of the environment, error).
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    # Episodes that were begun again.
    retries: int = 0
    # Milliseconds of a step that passed in the environment, and in the agent.
    env_ms: float = 0.0
    agent_ms: float = 0.0

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], failures: Sequence[Failure] = ()) -> ParallelRolloutStats:
        """The numbers of these rollouts."""
        missing = [failure.shown for failure in failures]
        if not rollouts:
            return cls(failures=missing)
        returns = [rollout.episode_return for rollout in rollouts]
        by_name: dict[str, list[float]] = {}
        for rollout in rollouts:
            by_name.setdefault(rollout.env_name, []).append(rollout.episode_return)
        steps = sum(rollout.episode_length for rollout in rollouts)
        per_step = 1000.0 / max(steps, 1)
        return cls(
            mean_return=statistics.fmean(returns),
            std_return=statistics.pstdev(returns),
            min_return=min(returns),
            max_return=max(returns),
            mean_length=steps / len(rollouts),
            total_steps=steps,
            num_episodes=len(rollouts),
            env_breakdown={name: statistics.fmean(values) for name, values in by_name.items()},
            failures=missing,
            retries=sum(rollout.attempts - 1 for rollout in rollouts),
            env_ms=per_step * sum(rollout.env_s for rollout in rollouts),
            agent_ms=per_step * sum(rollout.agent_s for rollout in rollouts),
        )

    def log_dict(self, prefix: str = "") -> dict[str, float]:
        """The numbers for W&B or another log, with one `return/<name>` for each environment."""
        single = {
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "min_return": self.min_return,
            "max_return": self.max_return,
            "mean_length": self.mean_length,
            "total_steps": self.total_steps,
            "num_episodes": self.num_episodes,
            "failures": len(self.failures),
            "retries": self.retries,
            "env_ms": self.env_ms,
            "agent_ms": self.agent_ms,
        }
        by_name = {f"return/{name}": value for name, value in self.env_breakdown.items()}
        return {f"{prefix}{name}": value for name, value in (single | by_name).items()}

"""A Gymnasium environment that answers to every action, and a player for it, for tests of loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from policies.agents.base import Arch
from policies.learner import Learner
from policies.play import Player, load_agent, save_agent
from tests.runs import tiny_config

# Env steps of the episodes, one after the other; the horizon of the agents is 6.
LENGTHS = (3, 6, 2, 5)


class Answering(gymnasium.Env[Any, Any]):
    """Observation and reward depend on all actions of the episode, and on its number."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, first: int = 0) -> None:
        self._episode = first - 1
        self.seen: list[tuple[float, ...]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._time, self._sum = 0, np.zeros(2)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert isinstance(action, np.ndarray) and self.action_space.contains(action)
        self.seen.append((self._episode, self._time, *action.tolist()))
        self._time += 1
        self._sum = 0.5 * self._sum + action
        over = self._time == LENGTHS[self._episode % len(LENGTHS)]
        return self._obs(), float(self._sum @ [1.0, -0.5] + self._episode), over, False, {}

    def _obs(self) -> Any:
        return (self._sum + np.array([0.1 * self._time, 0.3 * self._episode])).astype(np.float32)


def agent_file(folder: Path, family: str = "PointRobot", arch: Arch = Arch.Memory, **options: Any) -> Path:
    """The file of an untrained agent whose actions differ much from row to row."""
    with Learner(tiny_config(family, arch, **options)) as learner:
        with torch.no_grad():
            for parameter in learner.agent.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        save_agent(learner, folder / "agent.pt")
    return folder / "agent.pt"


def a_player(folder: Path, n: int = 1, **options: Any) -> Player:
    """A player of PointRobot, k = 2 and H = 6, whose PPO chooses actions beyond their bounds."""
    return load_agent(agent_file(folder, algorithm="PPO"), n=n, **options)

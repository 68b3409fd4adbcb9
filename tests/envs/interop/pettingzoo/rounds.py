"""A small game that needs no package: a ParallelEnv whose agents see different things and die on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


class Rounds:
    """Three agents; each is paid its choice, and dies when it chooses 2. After four steps a limit cuts."""

    metadata: Mapping[str, Any] = {"name": "rounds_v0", "render_modes": []}
    render_mode = None

    def __init__(self, break_it: str = "", limit: int = 4) -> None:
        self.possible_agents = ["a", "b", "c"]
        self.agents: list[str] = []
        self.break_it, self.limit = break_it, limit
        self._seen = {
            "a": spaces.Box(-1, 9, (2,), np.int16),
            "b": spaces.Dict({"observation": spaces.Box(1, 2, (1,)), "action_mask": spaces.MultiBinary(4)}),
            "c": spaces.Discrete(5),
        }
        self._acts = {name: spaces.Discrete(3 + index) for index, name in enumerate(self.possible_agents)}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.time = list(self.possible_agents), 0
        self.luck = float(np.random.default_rng(seed).random())
        return self._obs(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        assert list(actions) == self.agents
        self.time += 1
        rewards = {name: float(action) for name, action in actions.items()}
        ended = {name: action == 2 for name, action in actions.items()}
        cut = {name: self.time == self.limit and not ended[name] for name in self.agents}
        obs, infos = self._obs(), {name: {"time": self.time} for name in self.agents}
        self.agents = [name for name in self.agents if not (ended[name] or cut[name])]
        if self.break_it == "returns":
            self.agents = list(self.possible_agents)
        if self.break_it == "silent":
            del obs["b"]
        if self.break_it == "nan":
            rewards["b"] = np.nan
        return obs, rewards, ended, cut, infos

    def _obs(self) -> dict[str, Any]:
        mask = np.array([1, self.time % 2, 1, 1], np.int8)
        every = {
            "a": np.array([self.time, len(self.agents)], np.int16),
            "b": {"observation": np.array([1 + self.luck], np.float32), "action_mask": mask},
            "c": self.time,
        }
        return {name: every[name] for name in self.agents}

    def close(self) -> None:
        self.closed = True

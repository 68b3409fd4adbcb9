"""Bandit: a machine with arms, one of which pays most; a family as an outsider writes it from the pages.

Its episodes all start alike, and it draws no picture: neither is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Shard, Shelf, Split, TaskFamily
from envs.meta.kernels import checked_choices, split_uniforms
from utils.options import option
from utils.seeding import episode_seeds, uniforms


@dataclass
class BanditConfig(EnvConfig):
    """Options of Bandit."""

    family: str = "Bandit"
    max_episode_steps: int = option(10, "H: environment steps in an episode", low=1)
    arms: int = option(5, "arms to choose from", low=2)


class Bandit(TaskFamily):
    """A machine with arms, each of which pays with a probability of its own.

    Task: the probabilities, each uniform in [0, 1). Observation: a constant. Action: an arm. Reward: 1 with
    the probability of the arm, drawn anew in every step, else 0. H=10, k=2. The splits are disjoint.
    """

    Config, shelf = BanditConfig, Shelf.toy
    config: BanditConfig

    def __init__(self, config: BanditConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            "Bandit",
            obs_space=spaces.Box(0.0, 1.0, (1,), np.float32),
            action_space=spaces.Discrete(config.arms),
            task_dim=config.arms,
            split=Split.disjoint,
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_uniforms(rng, (n, self.config.arms), split)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return BanditShard(num_slots, self.config.arms)

    def oracle_action(self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]) -> NDArray[Any]:
        return task.argmax(1)


class BanditShard(Shard):
    """Slots of Bandit."""

    def __init__(self, num_slots: int, arms: int) -> None:
        self.pays = np.zeros((num_slots, arms))
        self.time, self.seeds = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.uint64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        self.pays[slots], self.seeds[slots], self.time[slots] = tasks, seeds, 0
        self.rows.obs[slots] = 1.0  # pyright: ignore[reportArgumentType, reportCallIssue]

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        arm = checked_choices(actions, slots, self.pays.shape[1])
        self.time[slots] += 1
        luck = uniforms(episode_seeds(self.seeds[slots], self.time[slots]), 1)[:, 0]
        self.rows.reward[slots] = luck < np.take_along_axis(self.pays[slots], arm[:, None], 1)[:, 0]

"""CybORG: the original simulator of CAGE Challenge 2, for whoever has it on disk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shelf, Split, TaskFamily
from envs.interop.cyborg import ACTION_SPACE, OBS_SPACE, CybORGEnv, what_is_missing
from envs.interop.gymnasium_shard import GymnasiumShard, TaskSetter
from envs.interop.spaces import ActionWriter, ObsReader
from envs.meta.cyber.cyber_defence import RedKind, attackers_of
from envs.meta.kernels import check_split, split_choices
from utils.options import option


@dataclass
class CybORGConfig(EnvConfig):
    """Options of CybORG."""

    family: str = "CybORG"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(100, "H: environment steps in an episode", low=1)
    path: str = option("", "the folder that holds the package CybORG; empty: it can be imported as it is")
    red: RedKind = option(RedKind.any, "which attackers are drawn; any: all")


class CybORG(TaskFamily):
    """Blue defends the network of CAGE Challenge 2 in the original simulator, CybORG 2.1.

    Task: the attacker (0 B_line, 1 Meander, 2 Sleep), shared by training and tests. Observation: 52 numbers,
    0 or 1. Action: one of 145. Reward: the simulator's. H=100, k=1. All of them are those of `CyberDefence`,
    so an agent that was trained there plays here. A step takes about 2 ms; the simulator's folder is given
    by `path`, since no package index has it.
    """

    Config = CybORGConfig
    shelf = Shelf.third_party
    config: CybORGConfig

    def __init__(self, config: CybORGConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="CybORG",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1,
            split=Split.shared,
        )

    @classmethod
    def lacks(cls, config: EnvConfig) -> str | None:
        return what_is_missing(config.path) if isinstance(config, CybORGConfig) else None

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        return split_choices(rng, n, attackers_of(self.config.red), split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> GymnasiumShard:
        return GymnasiumShard(
            partial(CybORGEnv, self.config.path),
            num_slots,
            ObsReader(OBS_SPACE, ACTION_SPACE),
            ActionWriter(ACTION_SPACE),
            task=TaskSetter("options", _attacker),
        )


def _attacker(task: NDArray[np.float64]) -> int:
    """The number of a task."""
    return round(float(task[0]))

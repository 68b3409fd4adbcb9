"""PointRobot: a point that has to find a goal on the upper half circle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Group, Obs, Reference, Split, TaskFamily
from envs.meta.kernels import split_uniforms
from envs.meta.plane import ACTION_SPACE, INFO_NAMES, OBS_SPACE, PlaneShard, towards
from utils.options import option
from utils.seeding import uniforms


class Start(Enum):
    """Where an episode starts: `fixed` at (0, 0), `random` uniform in [-1.5, 1.5] x [-0.5, 1.5]."""

    fixed = "fixed"
    random = "random"


class PointReward(Enum):
    """What a step is worth at distance d: `sparse` 1 in the goal, `sparse_distance` 1 - d in the goal, `dense` -d everywhere."""

    sparse = "sparse"
    sparse_distance = "sparse_distance"
    dense = "dense"


@dataclass
class PointRobotConfig(EnvConfig):
    """Options of PointRobot; the defaults are the Semi-Circle of pomdp-baselines."""

    family: str = "PointRobot"
    max_rollouts_per_task: int = option(2, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(60, "H: environment steps in an episode", low=1)
    reward: PointReward = option(PointReward.sparse, "sparse: 1 in the goal; sparse_distance: 1 - distance in the goal; dense: -distance")
    start: Start = option(Start.random, "fixed: at (0, 0); random: anywhere in [-1.5, 1.5] x [-0.5, 1.5], anew in every episode")
    radius: float = option(0.2, "how near to the goal is in the goal", above=0, high=1)


class PointRobot(TaskFamily):
    """A point that has to find a goal on the unit upper half circle.

    Task: the goal (x, y) = (cos t, sin t), t uniform in [0, pi]. Observation: the position (x, y). Action: two numbers in [-1, 1]; a step
    moves the point by a tenth of them. Reward: of the position after the step, see `PointReward`. The episode never ends by itself.
    Info: distance to the goal, success (in the goal now). No quantity lags.

    Published as: Semi-Circle, PointRobotSparse-v0 of pomdp-baselines (the defaults: reward=sparse, start=random, H=60, k=2; there with fixed
    lists of 80 and 20 tasks, here num_train_tasks=80); SparsePointEnv of VariBAD (reward=sparse_distance, start=fixed, H=100, k=3);
    sparse-point-robot of PEARL, as it trains (reward=dense, start=fixed, H=20). All of them with radius=0.2.
    """

    Config = PointRobotConfig
    group = Group.toy
    config: PointRobotConfig

    def __init__(self, config: PointRobotConfig) -> None:
        super().__init__(config)
        known = (config.reward, config.start, config.max_episode_steps, config.radius)
        self.spec = EnvSpec(
            name="PointRobot",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=INFO_NAMES,
            split=Split.disjoint,
            reference=_REFERENCES.get(known),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        angles = math.pi * split_uniforms(rng, (n,), split)
        # math, not numpy: numpy's trigonometry may give other last bits for arrays of other lengths.
        return np.array([(math.cos(angle), math.sin(angle)) for angle in angles.tolist()], np.float64).reshape(n, 2)

    def make_shard(self, num_slots: int, threads: int = 1) -> PointRobotShard:
        return PointRobotShard(num_slots, self.config)

    def oracle_action(self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]) -> NDArray[np.float32]:
        return towards(task, obs)


class PointRobotShard(PlaneShard):
    """Slots of PointRobot."""

    def __init__(self, num_slots: int, config: PointRobotConfig) -> None:
        super().__init__(num_slots, config.radius)
        self._starts_anywhere = config.start is Start.random
        self._kind = config.reward

    def start(self, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        if not self._starts_anywhere:
            return np.zeros((len(seeds), 2))
        return uniforms(seeds, 2) * (3.0, 2.0) + (-1.5, -0.5)

    def place(self, tasks: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return tasks, np.zeros_like(tasks)

    def reward(self, distance: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[Any]:
        if self._kind is PointReward.sparse:
            return inside
        return -distance if self._kind is PointReward.dense else (1.0 - distance) * inside


_REFERENCES = {
    (PointReward.sparse, Start.random, 60, 0.2): Reference(oracle=51.8, random=1.2),
    (PointReward.sparse_distance, Start.fixed, 100, 0.2): Reference(oracle=93.4, random=0.6),
    (PointReward.dense, Start.fixed, 20, 0.2): Reference(oracle=-3.8, random=-20.4),
    (PointReward.sparse, Start.fixed, 20, 0.4): Reference(oracle=15.4, random=0.0),
}
"""Returns of one episode with the published settings, and with the demo's (last), measured over 20,000 tasks with `oracle_action` and with
uniform actions."""

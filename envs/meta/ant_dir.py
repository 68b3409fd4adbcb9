"""AntDir: the MuJoCo ant that has to find out in which direction it is to run, on `mujoco.batch`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Group, Split, TaskFamily
from envs.meta.kernels import split_choices, split_uniforms, sum_columns
from envs.meta.mujoco_shard import At, Body, MujocoShard, Speeds
from utils.options import option

ANT = Body("ant.xml", frame_skip=5, noise=0.1, speeds=Speeds.normal)
HEALTHY_Z = (0.2, 1.0)
CONTROL_COST = 0.5
ALIVE = 1.0
TORSO = 1
"""The torso's body number, as Gymnasium's Ant has it too."""


class Variant(Enum):
    """The directions: `legacy` -1 or +1 radian, `forward_backward` 0 or pi, `circle` uniform in [0, 2 pi)."""

    legacy = "legacy"
    forward_backward = "forward_backward"
    circle = "circle"


_DIRECTIONS = {Variant.legacy: (-1.0, 1.0), Variant.forward_backward: (0.0, math.pi)}


@dataclass
class AntDirConfig(EnvConfig):
    """Options of AntDir; the defaults are AntDir-v0 of VariBAD and pomdp-baselines."""

    family: str = "AntDir"
    variant: Variant = option(Variant.legacy, "legacy: -1 or +1 radian; forward_backward: 0 or pi; circle: any direction")


class AntDir(TaskFamily):
    """The MuJoCo ant that has to find out in which direction it is to run.

    Task: the direction t in radians, by `variant`: -1 or +1 (legacy: "-1 and 1" were read as radians, so the two directions are 115 degrees
    apart and both have +x in them), 0 or pi (forward_backward), uniform in [0, 2 pi) (circle). Observation, 27 numbers: qpos[2:] (13), qvel
    (14). Action: eight torques in [-1, 1]. Reward: v . (cos t, sin t) - 0.5 |a|^2 + 1, where v is the torso's displacement in the step over
    its 0.05 s (5 frames of 0.01 s). The + 1 is paid on the last row of a fall too. Terminated: height outside [0.2, 1.0], a number that
    is not finite, or a simulation that diverged (MuJoCo resets it silently; its v is taken as 0). H=200, k=2. Every episode starts at
    MuJoCo's default pose with noise: U(-0.1, 0.1) on qpos, N(0, 0.1) on qvel. Info: velocity (v . (cos t, sin t)), x and y (of the torso).

    Lagged quantities: v, x and y are of `xpos`, which after a step describes the state before its last evaluation and not qpos. The
    published environments and Gymnasium's Ant take it from there too. Observation and height are current.

    Published as AntDir-v0 of VariBAD and pomdp-baselines, and ant-dir of PEARL (forward_backward, circle). No contact cost: with the MuJoCo
    versions of the published results `cfrc_ext` was all zeros. The model is Gymnasium's ant.xml. The two directions of legacy and
    forward_backward are all the tasks there are, so their splits are shared; those of circle are disjoint.
    """

    Config = AntDirConfig
    group = Group.locomotion
    config: AntDirConfig

    def __init__(self, config: AntDirConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="AntDir",
            obs_space=spaces.Box(-np.inf, np.inf, (27,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (8,), np.float32),
            task_dim=1,
            info_names=("velocity", "x", "y"),
            split=Split.disjoint if config.variant is Variant.circle else Split.shared,
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        if self.config.variant is Variant.circle:
            return 2.0 * math.pi * split_uniforms(rng, (n, 1), split)
        return split_choices(rng, n, _DIRECTIONS[self.config.variant], split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> AntDirShard:
        return AntDirShard(num_slots, threads)


class AntDirShard(MujocoShard):
    """Slots of AntDir: the reward in numpy over the batch's bound arrays."""

    def __init__(self, num_slots: int, threads: int) -> None:
        super().__init__(num_slots, threads, ANT, dims=2)
        self._torso = self.batch.bind("xpos")[:, TORSO, :2]
        self._direction = np.zeros((num_slots, 2))

    def take(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        # math, not numpy: numpy's trigonometry may give other last bits for arrays of other lengths.
        self._direction[slots] = [(math.cos(angle), math.sin(angle)) for angle in tasks[:, 0].tolist()]

    def position(self, at: At) -> NDArray[np.float64]:
        return self._torso[at]

    def begin(self, at: At, position: NDArray[np.float64]) -> None:
        self.rows.info[at, 0] = 0.0
        self.rows.info[at, 1:] = position

    def score(self, at: At, ctrl: NDArray[np.float64], position: NDArray[np.float64], velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        velocity *= self._direction[at]
        along = velocity[:, 0] + velocity[:, 1]
        self.rows.info[at, 0] = along
        self.rows.info[at, 1:] = position
        return along - CONTROL_COST * sum_columns(ctrl * ctrl) + ALIVE

    def fallen(self, at: At) -> NDArray[np.bool_]:
        height = self.qpos[at, 2]
        return (height < HEALTHY_Z[0]) | (height > HEALTHY_Z[1])

    def observe(self, at: At, obs: NDArray[Any]) -> None:
        obs[at, :13] = self.qpos[at, 2:]
        obs[at, 13:] = self.qvel[at]

"""CheetahDir: the half cheetah that has to find out whether it is to run forward or backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_choices
from envs.meta.locomotion.cheetah import ACTION_SPACE, OBS_SPACE, CheetahShard
from envs.meta.locomotion.mujoco_shard import SlotIndex

DIRECTIONS = (-1.0, 1.0)


@dataclass
class CheetahDirConfig(EnvConfig):
    """Options of CheetahDir; the defaults are those of VariBAD and pomdp-baselines."""

    family: str = "CheetahDir"


class CheetahDir(TaskFamily):
    """The half cheetah has to find out whether to run forward or backward.

    Task: the direction d, -1 or +1. Observation, 20 numbers: qpos[1:] (8), qvel (9), the torso's x, y, z (3).
    Action: six torques in [-1, 1]. Reward: d v - 0.05 |a|^2, where v is the change of qpos[0] in the step
    divided by the step's 0.05 s (5 frames of 0.01 s). Terminated: only when the simulation diverged (MuJoCo
    resets it silently; its v is taken as 0). H=200, k=2. Every episode starts at MuJoCo's default pose with
    noise: U(-0.1, 0.1) on qpos, N(0, 0.1) on qvel. Info: velocity (d v), x (qpos[0]).

    Lagged quantities: the torso's x, y, z are taken from `xpos`, which after a step describes the state
    before MuJoCo's last evaluation. The rest of the observation, and v, come from qpos and qvel, which are
    current. The published environments do the same.

    Published as CheetahDir-v0 of pomdp-baselines and HalfCheetahDir-v0 of VariBAD. The model is Gymnasium's
    half_cheetah.xml. The two directions are all the tasks there are, so the splits are shared.
    """

    Config = CheetahDirConfig
    shelf = Shelf.locomotion
    config: CheetahDirConfig
    references = (Reference(oracle=None, random=-20, tasks=200),)

    def __init__(self, config: CheetahDirConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="CheetahDir",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1,
            info_names=("velocity", "x"),
            split=Split.shared,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, DIRECTIONS, split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> CheetahDirShard:
        return CheetahDirShard(num_slots, threads)


class CheetahDirShard(CheetahShard):
    """Slots of CheetahDir."""

    def speed_reward(self, at: SlotIndex, velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        # Positive where the robot runs in the direction of its task.
        along = self.task[at] * velocity
        self.rows.info[at, 0] = along
        return along

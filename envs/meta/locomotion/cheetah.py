"""What the half cheetah's tasks share: the robot, its 20 observed numbers, and the cost of its torques."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.meta.kernels import sum_columns
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex, Speeds

# Five frames of 0.01 s make a step; the noise on the first velocities is Gaussian, as in Gymnasium.
CHEETAH = RobotModel("half_cheetah.xml", frame_skip=5, noise=0.1, speeds=Speeds.normal)
TORSO = 1
CONTROL_COST = 0.05

OBS_SPACE = spaces.Box(-np.inf, np.inf, (20,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (6,), np.float32)


class CheetahShard(MujocoShard):
    """Slots of a half cheetah whose task is one number.

    The reward is a function of the velocity (`speed_reward`) less the cost of the torques. The velocity is
    that of qpos[0] and current; the torso's position, the last three numbers of the observation, is `xpos`
    and lagged. Info starts with a velocity and x = qpos[0].
    """

    def __init__(self, num_slots: int, threads: int) -> None:
        super().__init__(num_slots, threads, CHEETAH)
        self.torso = self.batch.bind("xpos")[:, TORSO]
        self.task = np.zeros(num_slots)

    @abstractmethod
    def speed_reward(self, at: SlotIndex, velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] the reward for this velocity, without costs; writes the first info, a velocity."""

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self.task[slots] = tasks[:, 0]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.qpos[at, :1]

    def write_start_info(self, at: SlotIndex, position: NDArray[np.float64]) -> None:
        # A start has no velocity, and other infos of a subclass start at 0 as well.
        self.rows.info[at] = 0.0
        self.rows.info[at, 1] = position[:, 0]

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        self.rows.info[at, 1] = position[:, 0]
        return self.speed_reward(at, velocity[:, 0]) - CONTROL_COST * sum_columns(ctrl * ctrl)

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        # Joint positions without x, joint velocities, and the torso's (lagged) x, y, z.
        obs[at, :8] = self.qpos[at, 1:]
        obs[at, 8:17] = self.qvel[at]
        obs[at, 17:] = self.torso[at]

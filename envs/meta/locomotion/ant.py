"""What the ant's tasks share: the robot, its position, its healthy heights, and the cost of its contacts."""

from __future__ import annotations

from abc import ABC

import numpy as np
from numpy.typing import NDArray

from envs.meta.kernels import sum_columns
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex, Speeds

ANT = RobotModel("ant.xml", frame_skip=5, noise=0.1, speeds=Speeds.normal)
# The torso's body number, as Gymnasium's Ant has it too.
TORSO = 1

HEALTHY_Z = (0.2, 1.0)
# Gymnasium's weight of the squared contact forces.
CONTACT_COST = 0.5e-3
# The number of contact forces: six for each of 14 bodies. The first six are those of the world and always 0,
# but the published observations contain them.
FORCES = 84


class AntShard(MujocoShard, ABC):
    """Slots of an ant whose position is that of its torso.

    The position is lagged: after a step, `xpos` describes the state before MuJoCo's last evaluation.
    """

    def __init__(
        self, num_slots: int, threads: int, *, robot: RobotModel = ANT, contacts: bool = False
    ) -> None:
        super().__init__(num_slots, threads, robot, dims=2, contacts=contacts)
        self._torso = self.batch.bind("xpos")[:, TORSO, :2]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self._torso[at]

    def clipped_forces(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n, 84] `cfrc_ext`, lagged like the position, and clipped to [-1, 1]."""
        forces = self.contact_forces(at)
        return np.minimum(np.maximum(forces, -1.0), 1.0).reshape(len(forces), FORCES)

    def outside(self, at: SlotIndex, heights: tuple[float, float]) -> NDArray[np.bool_]:
        """[n] whether the torso's present height lies outside these bounds."""
        height = self.qpos[at, 2]
        return (height < heights[0]) | (height > heights[1])


def ant_contact_cost(forces: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] the cost of these clipped forces: 0.0005 times their squared norm."""
    return CONTACT_COST * sum_columns(forces * forces)

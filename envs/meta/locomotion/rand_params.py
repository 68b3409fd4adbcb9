"""Planar robots, and the families that multiply every number of a robot's model by a random factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms, sum_columns
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex, Speeds

# Observed speeds are clipped to [-FASTEST, FASTEST].
FASTEST = 10.0
# The exponents are uniform between -LIMIT and LIMIT.
LIMIT = 3.0
# The fields that are multiplied, in the order of the task. The factor of a number is the base of its field to
# the power of an exponent.
BASES = {"body_mass": 1.5, "body_inertia": 1.5, "geom_friction": 1.5, "dof_damping": 1.3}


@dataclass(frozen=True)
class HealthyRange:
    """The states in which a robot stands, as Gymnasium's `healthy_*_range` name them.

    Height and angle lie strictly within their bounds, and every other number of the state within `state`.
    """

    height: tuple[float, float]
    angle: float = math.inf
    state: float = math.inf


@dataclass(frozen=True)
class PlanarRobot:
    """A robot that moves in a plane: qpos are x, height, angle, and its joints."""

    model: RobotModel
    healthy: HealthyRange
    # The bodies of the model, the world included.
    bodies: int
    # The geoms of the model, the floor included.
    geoms: int
    # The joints that have a motor; x, height and angle have none.
    joints: int

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each field that is multiplied has."""
        return {
            "body_mass": self.bodies,
            "body_inertia": 3 * self.bodies,
            "geom_friction": 3 * self.geoms,
            # x, height and angle are degrees of freedom too; their damping is 0 and stays 0.
            "dof_damping": 3 + self.joints,
        }


HOPPER = PlanarRobot(
    RobotModel("hopper.xml", frame_skip=4, noise=0.005, speeds=Speeds.uniform),
    HealthyRange((0.7, math.inf), angle=0.2, state=100.0),
    bodies=5,
    geoms=5,
    joints=3,
)
WALKER = PlanarRobot(
    RobotModel("walker2d_v5.xml", frame_skip=4, noise=0.005, speeds=Speeds.uniform),
    HealthyRange((0.8, 2.0), angle=1.0),
    bodies=8,
    geoms=8,
    joints=6,
)


def fallen(healthy: HealthyRange, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[n] whether these planar robots have left their healthy range."""
    height, angle = qpos[:, 1], np.abs(qpos[:, 2])
    outside = (height <= healthy.height[0]) | (height >= healthy.height[1]) | (angle >= healthy.angle)
    # Only the hopper bounds the rest of its state, as Gymnasium's does.
    if healthy.state < math.inf:
        outside |= (np.abs(qpos[:, 2:]) >= healthy.state).any(axis=1)
        outside |= (np.abs(qvel) >= healthy.state).any(axis=1)
    return outside


class RandParams(TaskFamily):
    """What the two families of random parameters share.

    A subclass adds the robot, its scores, and the docstring that defines the family.
    """

    shelf = Shelf.locomotion
    robot: ClassVar[PlanarRobot]

    def __init__(self, config: EnvConfig) -> None:
        super().__init__(config)
        joints = self.robot.joints
        self.spec = EnvSpec(
            name=type(self).__name__,
            obs_space=spaces.Box(-np.inf, np.inf, (5 + 2 * joints,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (joints,), np.float32),
            task_dim=sum(self.robot.sizes.values()),
            info_names=("velocity", "x"),
            split=Split.disjoint,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        # Exponents uniform in [-LIMIT, LIMIT): a factor and its inverse are equally likely.
        return LIMIT * (2.0 * split_uniforms(rng, (n, self.spec.task_dim), split) - 1.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> RandParamsShard:
        return RandParamsShard(num_slots, threads, self.robot)


class RandParamsShard(MujocoShard):
    """Slots of a planar robot, each with parameters of its own."""

    ALIVE = 1.0
    CONTROL_COST = 1e-3

    def __init__(self, num_slots: int, threads: int, robot: PlanarRobot) -> None:
        super().__init__(num_slots, threads, robot.model, fields=tuple(BASES))
        self._robot = robot

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        # The constants that MuJoCo derives from masses when it reads a model (mj_setConst) are not updated,
        # as in the published environments.
        start = 0
        for name, base in BASES.items():
            default = getattr(self.model, name)
            exponents = tasks[:, start : start + default.size]
            self.fields[name][slots] = default * powers(base, exponents).reshape(-1, *default.shape)
            start += default.size

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.qpos[at, :1]

    def write_start_info(self, at: SlotIndex, position: NDArray[np.float64]) -> None:
        self.rows.info[at, :1] = 0.0
        self.rows.info[at, 1:] = position

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        self.rows.info[at, :1] = velocity
        self.rows.info[at, 1:] = position
        # The velocity along x, plus the bonus for being alive, less the cost of the torques.
        return velocity[:, 0] + self.ALIVE - self.CONTROL_COST * sum_columns(ctrl * ctrl)

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        return fallen(self._robot.healthy, self.qpos[at], self.qvel[at])

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        split = self.model.nq - 1
        # Everything but x, which would tell how far the robot has come.
        obs[at, :split] = self.qpos[at, 1:]
        obs[at, split:] = np.minimum(np.maximum(self.qvel[at], -FASTEST), FASTEST)


def powers(base: float, exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """base^exponents, computed number by number.

    numpy's powers may have other last bits in arrays of other lengths.
    """
    return np.array([base**exponent for exponent in exponents.ravel().tolist()]).reshape(exponents.shape)

"""PlanarRobot robots, and the families in which every number of a robot's model is multiplied by a random factor."""

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

FASTEST = 10.0
"""Speeds are observed up to this."""
LIMIT = 3.0
"""The exponents are uniform between -LIMIT and LIMIT."""
BASES = {"body_mass": 1.5, "body_inertia": 1.5, "geom_friction": 1.5, "dof_damping": 1.3}
"""The fields that are multiplied, in the order of the task, each by its base to the power of an exponent."""


@dataclass(frozen=True)
class HealthyRange:
    """When a robot stands: height (and angle) strictly within their bounds, and every other number of its
    state within `state`.
    """

    height: tuple[float, float]
    angle: float = math.inf
    state: float = math.inf


@dataclass(frozen=True)
class PlanarRobot:
    """A robot that lives in a plane: qpos are x, height, angle, and its joints."""

    model: RobotModel
    healthy: HealthyRange
    bodies: int
    """The world included."""
    geoms: int
    """The floor included."""
    joints: int
    """Those with a motor; x, height and angle have none."""

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers in each field that is multiplied."""
        return {
            "body_mass": self.bodies,
            "body_inertia": 3 * self.bodies,
            "geom_friction": 3 * self.geoms,
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
    """[n] whether these planar robots have fallen."""
    height = qpos[:, 1]
    out = (
        (height <= healthy.height[0]) | (height >= healthy.height[1]) | (np.abs(qpos[:, 2]) >= healthy.angle)
    )
    if healthy.state < math.inf:
        out |= (np.abs(qpos[:, 2:]) >= healthy.state).any(axis=1) | (np.abs(qvel) >= healthy.state).any(
            axis=1
        )
    return out


class RandParams(TaskFamily):
    """What the two families of randomised parameters share: all but the robot, its docstring and its scores."""

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
        return LIMIT * (2.0 * split_uniforms(rng, (n, self.spec.task_dim), split) - 1.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> RandParamsShard:
        return RandParamsShard(num_slots, threads, self.robot)


class RandParamsShard(MujocoShard):
    """Slots of a planar robot with parameters of their own."""

    ALIVE = 1.0
    CONTROL_COST = 1e-3

    def __init__(self, num_slots: int, threads: int, robot: PlanarRobot) -> None:
        super().__init__(num_slots, threads, robot.model, fields=tuple(BASES))
        self._robot = robot

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        # As published, the constants that MuJoCo derives from masses when it reads a model (mj_setConst) are
        # left as they are.
        start = 0
        for name, base in BASES.items():
            stock = getattr(self.model, name)
            exponents = tasks[:, start : start + stock.size]
            self.fields[name][slots] = stock * powers(base, exponents).reshape(-1, *stock.shape)
            start += stock.size

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
        return velocity[:, 0] + self.ALIVE - self.CONTROL_COST * sum_columns(ctrl * ctrl)

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        return fallen(self._robot.healthy, self.qpos[at], self.qvel[at])

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        split = self.model.nq - 1
        obs[at, :split] = self.qpos[at, 1:]
        obs[at, split:] = np.minimum(np.maximum(self.qvel[at], -FASTEST), FASTEST)


def powers(base: float, exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """base^exponents, number by number: numpy's powers may have other last bits in arrays of other lengths."""
    return np.array([base**exponent for exponent in exponents.ravel().tolist()]).reshape(exponents.shape)

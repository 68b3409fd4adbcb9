"""AntGoal: the MuJoCo ant that has to find the place where it is to stand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms, sum_columns
from envs.meta.locomotion.ant import ANT, FORCES, HEALTHY_Z, AntShard, ant_contact_cost
from envs.meta.locomotion.mujoco_shard import SlotIndex
from utils.options import OptionError, option

# The goal's radius at the levels 0 to 6.
RADII = (3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.3)
STANDARD_LEVEL = 4


class AntGoalVariant(Enum):
    """Where goals are and how a step is rewarded; see AntGoal."""

    dense = "dense"
    sparse = "sparse"
    level = "level"
    semicircle = "semicircle"
    semicircle_sparse = "semicircle_sparse"
    circle = "circle"


# The weight of the squared torques.
_CONTROL_COST = {
    AntGoalVariant.dense: 0.1,
    AntGoalVariant.sparse: 0.01,
    AntGoalVariant.level: 0.01,
    AntGoalVariant.semicircle: 0.1,
    AntGoalVariant.semicircle_sparse: 0.1,
    AntGoalVariant.circle: 0.5,
}
# How near to the goal counts as in the goal; the radius of `level` depends on the level.
_RADIUS = {
    AntGoalVariant.dense: 0.75,
    AntGoalVariant.sparse: 0.75,
    AntGoalVariant.semicircle: 0.2,
    AntGoalVariant.semicircle_sparse: 0.2,
    AntGoalVariant.circle: 0.4,
}
_SEMICIRCLES = (AntGoalVariant.semicircle, AntGoalVariant.semicircle_sparse)
# The ant of the half circles: its episodes start without noise.
_STILL = replace(ANT, noise=0.0)


@dataclass
class AntGoalConfig(EnvConfig):
    """Options of AntGoal; the defaults are AntGoal-v0 of VariBAD and pomdp-baselines."""

    family: str = "AntGoal"
    variant: AntGoalVariant = option(
        AntGoalVariant.dense,
        "goals and reward; the first three have goals within 3, the others at distance 1",
    )
    level: int = option(
        STANDARD_LEVEL,
        "the radius of the goal of variant=level, from 0 (radius 3.0) to 6 (0.3)",
        low=0,
        high=6,
    )
    contacts: bool = option(
        False, "observe the contact forces and subtract their cost (zeros in most published runs)"
    )


class AntGoal(TaskFamily):
    """The MuJoCo ant has to find the place where it is to stand.

    Task: the goal g = (x, y), uniform in the disc of radius 3 (dense, sparse, level), on the unit circle
    (circle), or on its upper half (semicircle, semicircle_sparse). Observation, 29 numbers: qpos (15), qvel
    (14); with `contacts` 84 more, the force and torque on each of 14 bodies (the first body, the world, has
    none), clipped to [-1, 1]. Action: eight torques in [-1, 1].

    Reward: p is the position of the torso after the step, and d = |p - g|. dense, semicircle: -(|p_x - g_x| +
    |p_y - g_y|) - 0.1 |a|^2. sparse: 1 - d where d <= 0.75, else -0.75; less 0.01 |a|^2. level: -min(d, R) -
    0.01 |a|^2, where R is 3, 2, 1.5, 1, 0.75, 0.5 or 0.3 for `level` 0 to 6. semicircle_sparse: 1 where d <=
    0.2, else 0; less 0.1 |a|^2. circle: 1 - d - 0.5 |a|^2. With `contacts` 0.0005 |clip(cfrc_ext, -1, 1)|^2
    is subtracted from all of them.

    Terminated: when the simulation diverged; in circle also when the height is outside [0.2, 1.0]. H=200,
    k=2. An episode starts at MuJoCo's default pose, with noise except on the half circle: U(-0.1, 0.1) on
    qpos, N(0, 0.1) on qvel. Info: distance (d), success (in the goal now: within the radius of the reward, or
    where the reward has none 0.75 for dense, 0.2 for semicircle and 0.4 for circle), x and y (of the torso).

    Lagged quantities: p, x, y and cfrc_ext are taken from the fields that MuJoCo derives. After a step these
    describe the state before its last evaluation, and not qpos; the published environments do the same. qpos,
    qvel and the height are current.

    Published as AntGoal-v0 of VariBAD, PEARL and pomdp-baselines (dense; always 113 numbers, of which 84 were
    zeros with the MuJoCo versions of the published results, so that the contact cost had no effect:
    contacts=false leaves them out); AntGoalSparse of HyperX (sparse) and of hyper (level), whose observations
    repeat the lagged position of the torso; AntSemiCircle and its sparse form of BOReL (no contacts); AntGoal
    of the pomdp-baselines fork by qrico64 (circle, reward_scale=1; its goals are evenly spaced, or on
    separate arcs for training and for testing, and some of its versions have the distance of dense). The
    model is Gymnasium's ant.xml. The splits are disjoint.
    """

    Config = AntGoalConfig
    shelf = Shelf.locomotion
    config: AntGoalConfig
    references = (Reference(oracle=None, random=-730, tasks=200),)

    def __init__(self, config: AntGoalConfig) -> None:
        super().__init__(config)
        if config.level != STANDARD_LEVEL and config.variant is not AntGoalVariant.level:
            raise OptionError(
                f"AntGoal: level={config.level} is the radius of variant=level, "
                f"and variant={config.variant.name} has its own."
            )
        self.spec = EnvSpec(
            name="AntGoal",
            obs_space=spaces.Box(-np.inf, np.inf, (29 + FORCES if config.contacts else 29,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (8,), np.float32),
            task_dim=2,
            info_names=("distance", "success", "x", "y"),
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        variant = self.config.variant
        turns, areas = split_uniforms(rng, (2, n), split)
        angles = (math.pi if variant in _SEMICIRCLES else 2.0 * math.pi) * turns
        if variant is AntGoalVariant.circle or variant in _SEMICIRCLES:
            radii = np.ones(n)
        else:
            # The root makes goals uniform in the disc: three quarters of its area lie beyond half its radius.
            radii = 3.0 * np.sqrt(areas)
        # math, not numpy: numpy's trigonometry may give other last bits for arrays of other lengths.
        goals = [
            (r * math.cos(angle), r * math.sin(angle))
            for r, angle in zip(radii.tolist(), angles.tolist(), strict=True)
        ]
        return np.array(goals, np.float64).reshape(n, 2)

    def make_shard(self, num_slots: int, threads: int = 1) -> AntGoalShard:
        return AntGoalShard(num_slots, threads, self.config)


class AntGoalShard(AntShard):
    """Slots of AntGoal."""

    def __init__(self, num_slots: int, threads: int, config: AntGoalConfig) -> None:
        super().__init__(
            num_slots,
            threads,
            robot=_STILL if config.variant in _SEMICIRCLES else ANT,
            contacts=config.contacts,
        )
        self._variant = config.variant
        self._radius = (
            RADII[config.level] if config.variant is AntGoalVariant.level else _RADIUS[config.variant]
        )
        self._goal = np.zeros((num_slots, 2))
        self._contacts = config.contacts

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self._goal[slots] = tasks

    def write_start_info(self, at: SlotIndex, position: NDArray[np.float64]) -> None:
        self._measure(at, position)

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        reward = self._goal_reward(*self._measure(at, position))
        reward -= _CONTROL_COST[self._variant] * sum_columns(ctrl * ctrl)
        if self._contacts:
            reward -= ant_contact_cost(self.clipped_forces(at))
        return reward

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_] | None:
        return self.outside(at, HEALTHY_Z) if self._variant is AntGoalVariant.circle else None

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        obs[at, :15] = self.qpos[at]
        obs[at, 15:29] = self.qvel[at]
        # The forces follow the 29 numbers of the state.
        if self._contacts:
            obs[at, 29:] = self.clipped_forces(at)

    def _measure(
        self, at: SlotIndex, position: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The offset [n, 2] from the goal and its length [n]; writes info."""
        offset = position - self._goal[at]
        # Square roots are correctly rounded everywhere, unlike np.hypot, so the bits depend on nothing.
        distance = np.sqrt(sum_columns(offset * offset))
        info = self.rows.info
        info[at, 0] = distance
        info[at, 1] = distance <= self._radius
        info[at, 2:] = position
        return offset, distance

    def _goal_reward(self, offset: NDArray[np.float64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] the reward for the position, before costs are subtracted."""
        match self._variant:
            # The Manhattan distance.
            case AntGoalVariant.dense | AntGoalVariant.semicircle:
                return -sum_columns(np.abs(offset))
            # The published sparse reward: continuous inside, and a constant penalty outside.
            case AntGoalVariant.sparse:
                return np.where(distance <= self._radius, 1.0 - distance, -self._radius)
            # The distance, cut off beyond the level's radius.
            case AntGoalVariant.level:
                return -np.minimum(distance, self._radius)
            case AntGoalVariant.semicircle_sparse:
                return (distance <= self._radius).astype(np.float64)
            case AntGoalVariant.circle:
                return 1.0 - distance

"""AntDir: the MuJoCo ant has to find out in which direction to run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_choices, split_uniforms, sum_columns
from envs.meta.locomotion.ant import HEALTHY_Z, AntShard, ant_contact_cost
from envs.meta.locomotion.mujoco_shard import SlotIndex
from utils.options import option

CONTROL_COST = 0.5
ALIVE = 1.0


class AntDirVariant(Enum):
    """The set of directions.

    `legacy`: -1 or +1 radian; `forward_backward`: 0 or pi; `circle`: any angle; `direction_2d`: any unit
    vector.
    """

    legacy = "legacy"
    forward_backward = "forward_backward"
    circle = "circle"
    direction_2d = "direction_2d"


# The angles of the variants that have two directions only.
_DIRECTIONS = {AntDirVariant.legacy: (-1.0, 1.0), AntDirVariant.forward_backward: (0.0, math.pi)}


@dataclass
class AntDirConfig(EnvConfig):
    """Options of AntDir; the defaults are AntDir-v0 of VariBAD and pomdp-baselines."""

    family: str = "AntDir"
    variant: AntDirVariant = option(
        AntDirVariant.legacy,
        "the directions: -1 or +1 radian, 0 or pi, any angle, or any unit vector",
    )
    contacts: bool = option(False, "subtract the contact cost, which had no effect in the published runs")


class AntDir(TaskFamily):
    """The MuJoCo ant has to find out in which direction to run.

    Task: the direction t in radians, by `variant`. legacy: -1 or +1 (the published "-1 and 1" were read as
    radians, so the two directions are 115 degrees apart, and both point partly along +x). forward_backward: 0
    or pi. circle: uniform in [0, 2 pi). direction_2d: the task is the unit vector (cos t, sin t) of a uniform
    t (published as a two-dimensional Gaussian, normalised).

    Observation, 27 numbers: qpos[2:] (13), qvel (14). Action: eight torques in [-1, 1]. Reward: v . (cos t,
    sin t) - 0.5 |a|^2 + 1, where v is the displacement of the torso in the step divided by the step's 0.05 s
    (5 frames of 0.01 s). With `contacts` the reward also contains - 0.0005 |clip(cfrc_ext, -1, 1)|^2. The + 1
    is paid on the last row of a fall too.

    Terminated: when the height is outside [0.2, 1.0] ([0, 1.0] for direction_2d), when a number is not
    finite, or when the simulation diverged (MuJoCo resets it silently; its v is taken as 0). H=200, k=2.
    Every episode starts at MuJoCo's default pose with noise: U(-0.1, 0.1) on qpos, N(0, 0.1) on qvel. Info:
    velocity (v . (cos t, sin t)), x and y (of the torso).

    Lagged quantities: v, x, y and cfrc_ext are taken from the fields that MuJoCo derives. After a step these
    describe the state before its last evaluation, and not qpos. The published environments and Gymnasium's
    Ant take them from there too. Observation and height are current.

    Published as AntDir-v0 of VariBAD and pomdp-baselines, ant-dir of PEARL (forward_backward, circle), and
    the 2-D ant of ProMP (direction_2d; its observation contained the 84 contact forces too). VariBAD's
    AntDir2D draws such unit vectors, but keeps only the first component and takes it for an angle; its
    directions lie within 57 degrees of +x and are not uniform. It is not offered here. All of these subtract
    the contact cost, but with the MuJoCo versions of the published results `cfrc_ext` was all zeros, because
    MuJoCo computes it only when it is asked to; hence contacts=false. The model is Gymnasium's ant.xml. The
    two directions of legacy and forward_backward are all the tasks there are, so their splits are shared; the
    other splits are disjoint.
    """

    Config = AntDirConfig
    shelf = Shelf.locomotion
    config: AntDirConfig
    references = (Reference(oracle=None, random=-27, tasks=200),)

    def __init__(self, config: AntDirConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="AntDir",
            obs_space=spaces.Box(-np.inf, np.inf, (27,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (8,), np.float32),
            task_dim=2 if config.variant is AntDirVariant.direction_2d else 1,
            info_names=("velocity", "x", "y"),
            split=Split.shared if config.variant in _DIRECTIONS else Split.disjoint,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        if self.config.variant in _DIRECTIONS:
            return split_choices(rng, n, _DIRECTIONS[self.config.variant], split)[:, None]
        angles = 2.0 * math.pi * split_uniforms(rng, (n, 1), split)
        return _headings(angles) if self.config.variant is AntDirVariant.direction_2d else angles

    def make_shard(self, num_slots: int, threads: int = 1) -> AntDirShard:
        return AntDirShard(num_slots, threads, self.config)


class AntDirShard(AntShard):
    """Slots of AntDir."""

    def __init__(self, num_slots: int, threads: int, config: AntDirConfig) -> None:
        super().__init__(num_slots, threads, contacts=config.contacts)
        self._config = config
        # ProMP's ant may lie on the ground.
        self._unit_vectors = config.variant is AntDirVariant.direction_2d
        self._healthy_z = (0.0, HEALTHY_Z[1]) if self._unit_vectors else HEALTHY_Z
        self._direction = np.zeros((num_slots, 2))

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self._direction[slots] = tasks if self._unit_vectors else _headings(tasks)

    def write_start_info(self, at: SlotIndex, position: NDArray[np.float64]) -> None:
        self.rows.info[at, 0] = 0.0
        self.rows.info[at, 1:] = position

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        # The velocity along the task's direction: an explicit sum of two products, the same bits for any n.
        velocity *= self._direction[at]
        along = velocity[:, 0] + velocity[:, 1]
        self.rows.info[at, 0] = along
        self.rows.info[at, 1:] = position
        # Forward velocity, less the cost of the torques, plus the bonus for being alive.
        reward = along - CONTROL_COST * sum_columns(ctrl * ctrl) + ALIVE
        if self._config.contacts:
            reward -= ant_contact_cost(self.clipped_forces(at))
        return reward

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        return self.outside(at, self._healthy_z)

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        # Without the torso's x and y, which would tell the agent where it is.
        obs[at, :13] = self.qpos[at, 2:]
        obs[at, 13:] = self.qvel[at]


def _headings(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 2] the unit vectors of [n, 1] angles."""
    # math, not numpy: numpy's trigonometry may give other last bits for arrays of other lengths.
    return np.array(
        [(math.cos(angle), math.sin(angle)) for angle in angles[:, 0].tolist()], np.float64
    ).reshape(len(angles), 2)

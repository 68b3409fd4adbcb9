"""HumanoidDir: the MuJoCo humanoid that has to find out in which direction it is to walk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms, sum_columns
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex, Speeds
from utils.options import option

HUMANOID = RobotModel("humanoid.xml", frame_skip=5, noise=0.01, speeds=Speeds.uniform)
HEALTHY_Z = (1.0, 2.0)
# The weight of the velocity, as in Gymnasium. The published 0.25 multiplies the displacement over the model's
# timestep, of which a step has five.
FORWARD = 1.25
CONTROL_COST = 0.1
CONTACT_COST = 0.5e-6
MOST_CONTACT_COST = 10.0
ALIVE = 5.0
# The derived fields that are observed after qpos and qvel.
FIELDS = ("cinert", "cvel", "qfrc_actuator")
# The sizes of the observation without contact forces, and of the contact forces (14 bodies).
WITHOUT_CONTACTS, FORCES = 292, 84


@dataclass
class HumanoidDirConfig(EnvConfig):
    """Options of HumanoidDir; the defaults are VariBAD's HumanoidDir-v0 without its 84 zeros."""

    family: str = "HumanoidDir"
    contacts: bool = option(False, "observe the contact forces, and pay for them")


class HumanoidDir(TaskFamily):
    """The MuJoCo humanoid has to find out in which direction to walk.

    Task: the direction (cos t, sin t), t uniform in [0, 2 pi). Observation, 292 numbers: qpos[2:] (22), qvel
    (23), of all 14 bodies, the world first, cinert (140) and cvel (84), then qfrc_actuator (23). Action: 17
    numbers in [-1, 1], scaled to the model's +-0.4. Reward: 0.25 (d . (cos t, sin t)) / 0.003 - 0.1 |ctrl|^2
    + 5, where d is the displacement of the centre of mass in the step, and 0.003 s is the timestep of the
    model and not of the step (5 frames): so the first term is 1.25 times the velocity, as in Gymnasium's
    Humanoid. The + 5 is paid on the last row of a fall too. Terminated: when the height is outside [1, 2], or
    when the simulation diverged (d is then 0). H=200, k=2. Every episode starts at MuJoCo's default pose with
    noise: U(-0.01, 0.01) on qpos and qvel. Info: velocity (along the direction), x and y (of the centre of
    mass).

    With `contacts`, cfrc_ext of all 14 bodies (84) is observed as well, 376 numbers in all, and min(0.5e-6
    |cfrc_ext|^2, 10) is subtracted.

    Lagged quantities: the centre of mass (of `xipos`), cinert, cvel, qfrc_actuator and cfrc_ext describe,
    after a step, MuJoCo's last evaluation and not the state that it led to, in the published environments and
    in Gymnasium's Humanoid as well. qpos, qvel and height are current.

    Published as HumanoidDir-v0 of VariBAD and pomdp-baselines, where the contact forces were all zeros with
    the MuJoCo versions of the results: contacts=false is that task without the zeros. The model is
    Gymnasium's humanoid.xml. The splits are disjoint.
    """

    Config = HumanoidDirConfig
    shelf = Shelf.locomotion
    config: HumanoidDirConfig
    references = (Reference(oracle=None, random=120.7, tasks=200),)

    def __init__(self, config: HumanoidDirConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="HumanoidDir",
            obs_space=spaces.Box(-np.inf, np.inf, (WITHOUT_CONTACTS + FORCES * config.contacts,), np.float32),
            action_space=spaces.Box(-1.0, 1.0, (17,), np.float32),
            task_dim=2,
            info_names=("velocity", "x", "y"),
            split=Split.disjoint,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        # math, not numpy: numpy's trigonometry may give other last bits for arrays of other lengths.
        angles = 2.0 * math.pi * split_uniforms(rng, (n,), split)
        return np.array([(math.cos(angle), math.sin(angle)) for angle in angles.tolist()]).reshape(n, 2)

    def make_shard(self, num_slots: int, threads: int = 1) -> HumanoidDirShard:
        return HumanoidDirShard(num_slots, threads, contacts=self.config.contacts)


class HumanoidDirShard(MujocoShard):
    """Slots of HumanoidDir."""

    # Torques are computed with the accelerations.
    start_stage = "ACC"

    def __init__(self, num_slots: int, threads: int, *, contacts: bool) -> None:
        super().__init__(num_slots, threads, HUMANOID, dims=2, contacts=contacts)
        self._xipos = self.batch.bind("xipos")
        # All slots have the same masses: one row, which broadcasts over the slots.
        self._masses = self.model.body_mass[None].copy()
        self._derived = [flat(self.batch.bind(name)) for name in FIELDS]
        self._contacts = contacts
        self._direction = np.zeros((num_slots, 2))

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self._direction[slots] = tasks

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return centre_of_mass(self._xipos[at], self._masses)

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
        reward = FORWARD * along - CONTROL_COST * sum_columns(ctrl * ctrl) + ALIVE
        if self._contacts:
            reward -= humanoid_contact_cost(self.contact_forces(at))
        return reward

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        height = self.qpos[at, 2]
        return (height < HEALTHY_Z[0]) | (height > HEALTHY_Z[1])

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        # The state without x and y, the derived fields, and, where asked for, the contact forces.
        obs[at, :22] = self.qpos[at, 2:]
        obs[at, 22:45] = self.qvel[at]
        write_fields(obs, at, 45, self._derived)
        if self._contacts:
            obs[at, WITHOUT_CONTACTS:] = flat(self.contact_forces(at))


def centre_of_mass(xipos: NDArray[np.float64], masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 2] the horizontal centre of mass of bodies at [n, bodies, 3].

    `masses` are [n, bodies], or [1, bodies] for all slots. The world, body 0, has none.
    """
    weighted = xipos[:, 1:, :2] * masses[:, 1:, None]
    return sum_columns(weighted) / sum_columns(masses[:, 1:])[:, None]


def humanoid_contact_cost(forces: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] the cost of these contact forces: 0.5e-6 times their squared norm, 10 at most."""
    return np.minimum(CONTACT_COST * sum_columns(flat(forces * forces)), MOST_CONTACT_COST)


def flat(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, ...] -> [n, numbers]."""
    return values.reshape(len(values), -1)


def write_fields(obs: NDArray[Any], at: SlotIndex, start: int, fields: list[NDArray[np.float64]]) -> None:
    """Write these numbers into the observation, one field after the other, from column `start` on."""
    for field in fields:
        stop = start + field.shape[1]
        obs[at, start:stop] = field[at]
        start = stop

"""BodyParams: Gymnasium's robots, each with unknown masses, dampings and gravity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms, sum_columns
from envs.meta.locomotion import ant, humanoid_dir, rand_params
from envs.meta.locomotion.ant import ANT
from envs.meta.locomotion.cheetah import CHEETAH
from envs.meta.locomotion.humanoid_dir import HUMANOID, centre_of_mass, flat, write_fields
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex
from envs.meta.locomotion.rand_params import FASTEST, HOPPER, WALKER, HealthyRange, powers
from utils.options import OptionError, nearest, option


class RobotName(Enum):
    """The robots to choose from."""

    ant = "ant"
    half_cheetah = "half_cheetah"
    hopper = "hopper"
    walker2d = "walker2d"
    humanoid = "humanoid"


# What can be randomised, in the order of the task, and the model's fields that it changes.
PARAMETERS = {"mass": ("body_mass", "body_inertia"), "damping": ("dof_damping",), "gravity": ("opt.gravity",)}


@dataclass(frozen=True)
class RobotTask:
    """A robot and its reward, as in Gymnasium's v5 task."""

    model: RobotModel
    # The bodies of the model, the world not included.
    bodies: int
    # One for each damped joint, in the same order.
    motors: int
    # The size of the observation without contact forces.
    observed: int
    # The weight of the squared torques; the next ones are those of the velocity and of being alive.
    control: float
    forward: float = 1.0
    alive: float = 0.0
    # None for a robot that cannot fall.
    healthy: HealthyRange | None = None


ROBOT_TASKS = {
    RobotName.ant: RobotTask(ANT, 13, 8, 27, control=0.5, alive=1.0, healthy=HealthyRange((0.2, 1.0))),
    RobotName.half_cheetah: RobotTask(CHEETAH, 7, 6, 17, control=0.1),
    RobotName.hopper: RobotTask(HOPPER.model, 4, 3, 11, control=1e-3, alive=1.0, healthy=HOPPER.healthy),
    RobotName.walker2d: RobotTask(WALKER.model, 7, 6, 17, control=1e-3, alive=1.0, healthy=WALKER.healthy),
    RobotName.humanoid: RobotTask(
        HUMANOID, 13, 17, 270, control=0.1, forward=1.25, alive=5.0, healthy=HealthyRange((1.0, 2.0))
    ),
}


@dataclass
class BodyParamsConfig(EnvConfig):
    """Options of BodyParams; the defaults are the ant with all parameters randomised."""

    family: str = "BodyParams"
    body: RobotName = option(RobotName.ant, "the robot")
    parameters: list[str] = option(
        list(PARAMETERS), f"the parameters that are randomised: some of {', '.join(PARAMETERS)}"
    )
    base: float = option(1.5, "the base of the factors base^e", above=1, high=10)
    limit: float = option(3.0, "the exponents e are uniform from -limit to limit", above=0, high=10)
    contacts: bool = option(
        False, "observe the contact forces and subtract their cost, as Gymnasium's ant and humanoid do"
    )


class BodyParams(TaskFamily):
    """A MuJoCo robot has to find out its masses, its dampings and its gravity.

    Task: exponents e, each uniform in [-3, 3] (`limit`), each for a factor 1.5^e (`base`). Of `parameters`,
    in this order: mass, one for each body but the world, on body_mass and body_inertia alike; damping, one
    for each joint with a motor; gravity, one. For the ant these are 13 + 8 + 1 = 22, for half_cheetah and
    walker2d 7 + 6 + 1, for hopper 4 + 3 + 1, for humanoid 13 + 17 + 1. The constants that MuJoCo derives from
    masses are computed anew (mj_setConst), so each robot is one that could have been read from a file.

    Action: torques in [-1, 1], scaled to those of the model. Observation, reward, noise and ends are those of
    Gymnasium's v5 task of the robot (`body`). Observation: qpos without the place, qvel, and for the humanoid
    cinert, cvel and qfrc_actuator too (ant 27 numbers, half_cheetah and walker2d 17, hopper 11, humanoid
    270). Reward: w v + b - c |ctrl|^2, where v is the velocity along x, and the bonus b is not paid on the
    row of a fall: ant w=1, b=1, c=0.5; half_cheetah 1, 0, 0.1; hopper and walker2d 1, 1, 0.001; humanoid
    1.25, 5, 0.1.

    Terminated: when the simulation diverged (its v is 0); ant: height outside [0.2, 1]; humanoid: height
    outside [1, 2]; walker2d: height outside (0.8, 2) or angle outside +-1; hopper: height below 0.7, angle
    outside +-0.2 or any other number of its state outside +-100; half_cheetah: never. H=200, k=2. Info:
    velocity and x.

    With `contacts`, for ant and humanoid: cfrc_ext of all bodies but the world (78 numbers) is observed as
    well, and its cost is subtracted: 5e-4 |cfrc_ext|^2 for the ant (clipped to [-1, 1], in the observation
    too), min(5e-7 |cfrc_ext|^2, 10) for the humanoid.

    Lagged quantities: v and x of the ant (torso) and the humanoid (centre of mass), cinert, cvel,
    qfrc_actuator and cfrc_ext describe MuJoCo's last evaluation, as in Gymnasium. v and x of the planar
    robots come from qpos and are current, as is everything else.

    Published in similar form as RESeL's DM_<body>_gravity, dof_damping and body_mass, which randomise one of
    the parameters each, with H=1000, k=1, and limit=2 for the humanoid. The scaled inertias and the constants
    computed anew are ours. The splits are disjoint.
    """

    Config = BodyParamsConfig
    shelf = Shelf.locomotion
    config: BodyParamsConfig
    references = (Reference(oracle=None, random=-35.2, tasks=200),)

    def __init__(self, config: BodyParamsConfig) -> None:
        super().__init__(config)
        _check_parameters(config.parameters)
        task = ROBOT_TASKS[config.body]
        if config.contacts and config.body not in FLOATING_BASE_SHARDS:
            raise OptionError(
                "BodyParams: contacts=true is for ant and humanoid; "
                f"Gymnasium's {config.body.name} has no contact cost."
            )
        sizes = {"mass": task.bodies, "damping": task.motors, "gravity": 1}
        self._sizes = {name: sizes[name] for name in PARAMETERS if name in config.parameters}
        self.spec = EnvSpec(
            name="BodyParams",
            obs_space=spaces.Box(
                -np.inf, np.inf, (task.observed + 6 * task.bodies * config.contacts,), np.float32
            ),
            action_space=spaces.Box(-1.0, 1.0, (task.motors,), np.float32),
            task_dim=sum(self._sizes.values()),
            info_names=("velocity", "x"),
            split=Split.disjoint,
            reference=self.measured_reference(),
        )

    @classmethod
    def options_of_return(cls, config: EnvConfig) -> dict[str, Any]:
        """`parameters` count as a set: the order in which they are typed changes nothing."""
        assert isinstance(config, BodyParamsConfig)
        return super().options_of_return(config) | {"parameters": set(config.parameters)}

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        # Exponents uniform in [-limit, limit): a factor and its inverse are equally likely.
        return self.config.limit * (2.0 * split_uniforms(rng, (n, self.spec.task_dim), split) - 1.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> BodyParamsShard:
        shard_type = FLOATING_BASE_SHARDS.get(self.config.body, PlanarShard)
        return shard_type(
            num_slots,
            threads,
            ROBOT_TASKS[self.config.body],
            self._sizes,
            base=self.config.base,
            contacts=self.config.contacts,
        )


def _check_parameters(parameters: list[str]) -> None:
    """Refuse an unknown parameter, one that is named twice, and a list without any."""
    for name in parameters:
        if name not in PARAMETERS:
            hint = nearest(str(name), PARAMETERS)
            raise OptionError(f"BodyParams: parameters={parameters} names {name!r}.{hint}")
    if not parameters or len(set(parameters)) < len(parameters):
        raise OptionError(
            f"BodyParams: parameters={parameters} should name at least one parameter, and none twice."
        )


class BodyParamsShard(MujocoShard, ABC):
    """Slots of one robot, each with parameters of its own.

    A subclass defines the observation, the position whose velocity is rewarded, and the fall.
    """

    def __init__(
        self,
        num_slots: int,
        threads: int,
        task: RobotTask,
        sizes: dict[str, int],
        *,
        base: float,
        contacts: bool,
    ) -> None:
        fields = tuple(field for name in sizes for field in PARAMETERS[name])
        super().__init__(num_slots, threads, task.model, fields=fields, contacts=contacts)
        self.task, self.contacts = task, contacts
        self._sizes, self._base = sizes, base
        self._fallen = np.zeros(num_slots, np.bool_)

    @abstractmethod
    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        """[n] whether these robots have fallen."""

    def contact_cost(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n] the cost of the contacts of these robots."""
        raise NotImplementedError

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        start = 0
        for name, size in self._sizes.items():
            factors = powers(self._base, tasks[:, start : start + size])
            for field in PARAMETERS[name]:
                self._scale(field, slots, factors)
            start += size
        # Derive MuJoCo's constants from the new masses, as if the model had been read with them.
        self.batch.set_const(slots)

    def _scale(self, field: str, slots: NDArray[np.int64], factors: NDArray[np.float64]) -> None:
        """Set one field of these slots to the model's own values times the factors [n, numbers]."""
        if field == "opt.gravity":
            default, last = self.model.opt.gravity, slice(None)
        else:
            # The entries that are randomised come last: bodies after the world, and joints with a motor after
            # those of the torso.
            default, last = getattr(self.model, field), slice(-factors.shape[1], None)
        broadcast = factors.reshape(len(slots), -1, *[1] * (default.ndim - 1))
        self.fields[field][slots, last] = default[last] * broadcast

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
        # Forward velocity less the cost of the torques.
        reward = self.task.forward * velocity[:, 0] - self.task.control * sum_columns(ctrl * ctrl)
        # The bonus for being alive is not paid on the row of a fall, unlike in AntDir.
        if self.task.healthy is not None:
            fallen = self._fallen[at] = self.has_fallen(at)
            reward += self.task.alive * ~fallen
        if self.contacts:
            reward -= self.contact_cost(at)
        return reward

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        """[n] what `score` has just found; a robot that cannot fall never ends an episode."""
        return self._fallen[at]


class PlanarShard(BodyParamsShard):
    """Half cheetahs, hoppers and walkers."""

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.qpos[at, :1]

    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        assert self.task.healthy is not None
        return rand_params.fallen(self.task.healthy, self.qpos[at], self.qvel[at])

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        split, speeds = self.model.nq - 1, self.qvel[at]
        # Gymnasium clips the speeds of hopper and walker, and not those of the half cheetah.
        if self.task.healthy is not None:
            speeds = np.minimum(np.maximum(speeds, -FASTEST), FASTEST)
        obs[at, :split] = self.qpos[at, 1:]
        obs[at, split:] = speeds


class FloatingBaseShard(BodyParamsShard):
    """Ants and humanoids, whose torso moves freely in space."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Without x and y; a subclass appends derived fields.
        self.observed_fields = [self.qpos[:, 2:], self.qvel]

    @abstractmethod
    def forces(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n, 78] the contact forces that are observed and whose cost is subtracted."""

    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        assert self.task.healthy is not None
        (low, high), height = self.task.healthy.height, self.qpos[at, 2]
        return (height <= low) | (height >= high)

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        write_fields(obs, at, 0, self.observed_fields)
        if self.contacts:
            obs[at, self.task.observed :] = self.forces(at)


class AntParamsShard(FloatingBaseShard):
    """Slots of the ant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._torso = self.batch.bind("xpos")[:, ant.TORSO, :1]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self._torso[at]

    def forces(self, at: SlotIndex) -> NDArray[np.float64]:
        return np.minimum(np.maximum(flat(self.contact_forces(at)[:, 1:]), -1.0), 1.0)

    def contact_cost(self, at: SlotIndex) -> NDArray[np.float64]:
        return ant.ant_contact_cost(self.forces(at))


class HumanoidParamsShard(FloatingBaseShard):
    """Slots of the humanoid."""

    # Torques are computed with the accelerations.
    start_stage = "ACC"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._xipos = self.batch.bind("xipos")
        # Every slot has masses of its own only where they are randomised.
        self._masses = self.fields.get(
            "body_mass", np.broadcast_to(self.model.body_mass, (self.num_slots, self.model.nbody))
        )

        # As in Gymnasium: without the world's rows and the torso's torques, which are always 0.
        self.observed_fields += [
            flat(self.batch.bind(name))[:, skip:]
            for name, skip in (("cinert", 10), ("cvel", 6), ("qfrc_actuator", 6))
        ]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return centre_of_mass(self._xipos[at], self._masses[at])[:, :1]

    def forces(self, at: SlotIndex) -> NDArray[np.float64]:
        return flat(self.contact_forces(at)[:, 1:])

    def contact_cost(self, at: SlotIndex) -> NDArray[np.float64]:
        return humanoid_dir.humanoid_contact_cost(self.forces(at))


# The shards of the robots that also have contact forces; all other robots are planar.
FLOATING_BASE_SHARDS = {RobotName.ant: AntParamsShard, RobotName.humanoid: HumanoidParamsShard}

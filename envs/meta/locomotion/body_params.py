"""BodyParams: the robots of Gymnasium, each of which has to find out how heavy and how stiff it is, and how
strongly it is pulled down.
"""

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
    """The bodies to choose from."""

    ant = "ant"
    half_cheetah = "half_cheetah"
    hopper = "hopper"
    walker2d = "walker2d"
    humanoid = "humanoid"


PARAMETERS = {"mass": ("body_mass", "body_inertia"), "damping": ("dof_damping",), "gravity": ("opt.gravity",)}
"""What can be randomised, in the order of the task, and the fields of the model that it changes."""


@dataclass(frozen=True)
class RobotTask:
    """A robot and its reward, as in Gymnasium's v5 task."""

    model: RobotModel
    bodies: int
    """The world not included."""
    motors: int
    """One for each damped joint, in the same order."""
    observed: int
    """Numbers in the observation, without contact forces."""
    control: float
    forward: float = 1.0
    alive: float = 0.0
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
    """Options of BodyParams."""

    family: str = "BodyParams"
    body: RobotName = option(RobotName.ant, "the robot")
    parameters: list[str] = option(list(PARAMETERS), f"what is randomised: some of {', '.join(PARAMETERS)}")
    base: float = option(1.5, "of the factors base^e", above=1, high=10)
    limit: float = option(3.0, "the exponents e are uniform from -limit to limit", above=0, high=10)
    contacts: bool = option(
        False, "observe the contact forces and pay for them, as the stock tasks of ant and humanoid do"
    )


class BodyParams(TaskFamily):
    """The robots of Gymnasium, each of which has to find out how heavy and how stiff it is, and how strongly
    it is pulled down.

    Task: exponents e, each uniform in [-3, 3] (`limit`), each for a factor 1.5^e (`base`). Of `parameters`,
    in this order: mass, one for each body but the world, on body_mass and body_inertia alike; damping, one
    for each joint with a motor; gravity, one. For the ant that makes 13 + 8 + 1 = 22, half_cheetah and
    walker2d 7 + 6 + 1, hopper 4 + 3 + 1, humanoid 13 + 17 + 1. The constants that MuJoCo derives from masses
    are computed anew (mj_setConst), so each robot is one that could have been read from a file.

    Action: torques in [-1, 1], scaled to those of the model. Observation, reward, noise and ends are those of
    Gymnasium's v5 task of the body. Observation: qpos without the place, qvel, of the humanoid cinert, cvel
    and qfrc_actuator too (ant 27 numbers, half_cheetah and walker2d 17, hopper 11, humanoid 270). Reward: w v
    + b - c |ctrl|^2, where v is the velocity along x, and the bonus b is not paid on the row of a fall: ant
    w=1, b=1, c=0.5; half_cheetah 1, 0, 0.1; hopper and walker2d 1, 1, 0.001; humanoid 1.25, 5, 0.1.
    Terminated, beside a simulation that diverged (its v is 0): ant height outside [0.2, 1]; humanoid outside
    [1, 2]; walker2d height outside (0.8, 2) or angle outside +-1; hopper height below 0.7, angle outside
    +-0.2 or any other number of its state outside +-100; half_cheetah never. H=200, k=2. Info: velocity and
    x.

    With `contacts`, for ant and humanoid: cfrc_ext of all bodies but the world (78 numbers) is observed as
    well, and 5e-4 |cfrc_ext|^2 is subtracted (ant: clipped to [-1, 1], in the observation too) or min(5e-7
    |cfrc_ext|^2, 10) (humanoid).

    Lagged quantities: v and x of the ant (torso) and the humanoid (centre of mass), cinert, cvel,
    qfrc_actuator and cfrc_ext describe the last evaluation of the physics, as in Gymnasium. The planar
    robots' v and x are of qpos, as everything else current.

    Published like RESeL's DM_<body>_gravity, dof_damping and body_mass, which randomise one of the parameters
    each, with H=1000, k=1, and limit=2 for the humanoid. The scaled inertias and the constants derived anew
    are ours. The splits are disjoint.
    """

    Config = BodyParamsConfig
    shelf = Shelf.locomotion
    config: BodyParamsConfig
    references = (Reference(oracle=None, random=-35.2, tasks=200),)

    def __init__(self, config: BodyParamsConfig) -> None:
        super().__init__(config)
        for name in config.parameters:
            if name not in PARAMETERS:
                raise OptionError(
                    f"BodyParams: parameters={config.parameters} names {name!r}.{nearest(str(name), PARAMETERS)}"
                )
        if not config.parameters or len(set(config.parameters)) < len(config.parameters):
            raise OptionError(
                f"BodyParams: parameters={config.parameters} should name at least one parameter, and none twice."
            )
        stock = ROBOT_TASKS[config.body]
        if config.contacts and config.body not in FLOATING_BASE_SHARDS:
            raise OptionError(
                f"BodyParams: contacts=true is for ant and humanoid; the stock {config.body.name} has no contact cost."
            )
        sizes = {"mass": stock.bodies, "damping": stock.motors, "gravity": 1}
        self._sizes = {name: sizes[name] for name in PARAMETERS if name in config.parameters}
        self.spec = EnvSpec(
            name="BodyParams",
            obs_space=spaces.Box(
                -np.inf, np.inf, (stock.observed + 6 * stock.bodies * config.contacts,), np.float32
            ),
            action_space=spaces.Box(-1.0, 1.0, (stock.motors,), np.float32),
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
        return self.config.limit * (2.0 * split_uniforms(rng, (n, self.spec.task_dim), split) - 1.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> BodyParamsShard:
        kind = FLOATING_BASE_SHARDS.get(self.config.body, PlanarShard)
        return kind(
            num_slots,
            threads,
            ROBOT_TASKS[self.config.body],
            self._sizes,
            base=self.config.base,
            contacts=self.config.contacts,
        )


class BodyParamsShard(MujocoShard, ABC):
    """Slots of one robot with parameters of their own; a subclass says what is observed and what moves
    forward.
    """

    def __init__(
        self,
        num_slots: int,
        threads: int,
        stock: RobotTask,
        sizes: dict[str, int],
        *,
        base: float,
        contacts: bool,
    ) -> None:
        fields = tuple(field for name in sizes for field in PARAMETERS[name])
        super().__init__(num_slots, threads, stock.model, fields=fields, contacts=contacts)
        self.stock, self.contacts = stock, contacts
        self._sizes, self._base = sizes, base
        self._fallen = np.zeros(num_slots, np.bool_)

    @abstractmethod
    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        """[n] whether these robots have fallen."""

    def contact_cost(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n] what the contacts of these robots cost."""
        raise NotImplementedError

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        start = 0
        for name, size in self._sizes.items():
            factors = powers(self._base, tasks[:, start : start + size])
            for field in PARAMETERS[name]:
                stock, own = (
                    getattr(self.model.opt if name == "gravity" else self.model, field.removeprefix("opt.")),
                    self.fields[field],
                )
                # The entries that are randomised come last: bodies after the world, joints with a motor after
                # the torso's. Of gravity, all.
                last = slice(None) if name == "gravity" else slice(-size, None)
                own[slots, last] = stock[last] * factors.reshape(len(slots), -1, *[1] * (stock.ndim - 1))
            start += size
        self.batch.set_const(slots)

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
        reward = self.stock.forward * velocity[:, 0] - self.stock.control * sum_columns(ctrl * ctrl)
        if self.stock.healthy is not None:
            fallen = self._fallen[at] = self.has_fallen(at)
            reward += self.stock.alive * ~fallen
        return reward - self.contact_cost(at) if self.contacts else reward

    def fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        return self._fallen[at]


class PlanarShard(BodyParamsShard):
    """Half cheetahs, hoppers and walkers."""

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.qpos[at, :1]

    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        assert self.stock.healthy is not None
        return rand_params.fallen(self.stock.healthy, self.qpos[at], self.qvel[at])

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        split, speeds = self.model.nq - 1, self.qvel[at]
        obs[at, :split] = self.qpos[at, 1:]
        obs[at, split:] = (
            speeds if self.stock.healthy is None else np.minimum(np.maximum(speeds, -FASTEST), FASTEST)
        )


class FloatingBaseShard(BodyParamsShard):
    """Robots whose torso moves in space."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen = [self.qpos[:, 2:], self.qvel]

    @abstractmethod
    def forces(self, at: SlotIndex) -> NDArray[np.float64]:
        """[n, 78] the contact forces that are observed and paid for."""

    def has_fallen(self, at: SlotIndex) -> NDArray[np.bool_]:
        assert self.stock.healthy is not None
        (low, high), height = self.stock.healthy.height, self.qpos[at, 2]
        return (height <= low) | (height >= high)

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        write_fields(obs, at, 0, self.seen)
        if self.contacts:
            obs[at, self.stock.observed :] = self.forces(at)


class AntParamsShard(FloatingBaseShard):
    """Ants."""

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
    """Humanoids."""

    start_stage = "ACC"
    """Torques are computed with the accelerations."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._xipos = self.batch.bind("xipos")
        self._masses = self.fields.get(
            "body_mass", np.broadcast_to(self.model.body_mass, (self.num_slots, self.model.nbody))
        )
        # As in Gymnasium: without the world's rows and the torso's torques, which are always 0.
        self.seen += [
            flat(self.batch.bind(name))[:, skip:]
            for name, skip in (("cinert", 10), ("cvel", 6), ("qfrc_actuator", 6))
        ]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return centre_of_mass(self._xipos[at], self._masses[at])[:, :1]

    def forces(self, at: SlotIndex) -> NDArray[np.float64]:
        return flat(self.contact_forces(at)[:, 1:])

    def contact_cost(self, at: SlotIndex) -> NDArray[np.float64]:
        return humanoid_dir.humanoid_contact_cost(self.forces(at))


FLOATING_BASE_SHARDS = {RobotName.ant: AntParamsShard, RobotName.humanoid: HumanoidParamsShard}

"""BodyParams against plain MuJoCo and against Gymnasium's v5 tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.locomotion.body_params import PARAMETERS, ROBOT_TASKS, BodyParamsShard, RobotName
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones, peer_of
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain, mujoco
from tests.envs.meta.played import Played, random_actions
from utils.options import OptionError


class PlainBody(PlainRobot):
    """The definition, in scalars: masses, dampings and gravity all vary. These are Gymnasium's numbers."""

    control, forward, alive = 0.1, 1.0, 0.0

    def parametrise(self) -> None:
        stock = type(self)().model
        numbers = iter(self.task)
        for body in range(1, self.model.nbody):
            factor = 1.5 ** next(numbers)
            self.model.body_mass[body] = stock.body_mass[body] * factor
            self.model.body_inertia[body] = stock.body_inertia[body] * factor
        for freedom in range(self.model.nv):
            if stock.dof_damping[freedom] > 0:
                self.model.dof_damping[freedom] = stock.dof_damping[freedom] * 1.5 ** next(numbers)
        self.model.opt.gravity[2] = stock.opt.gravity[2] * 1.5 ** next(numbers)
        assert next(numbers, None) is None
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))

    def position(self) -> list[float]:
        return [float(self.data.qpos[0])]

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        bonus = 0.0 if self.fallen() else self.alive
        return (
            self.forward * velocity[0]
            + bonus
            - self.control * sum(torque**2 for torque in torques)
            - self.cost()
        )

    def cost(self) -> float:
        return 0.0

    def obs(self) -> np.ndarray:
        return np.concatenate([self.data.qpos[1:], self.data.qvel])


class PlainCheetah(PlainBody):
    file, frame_skip, noise, normal_speeds = "half_cheetah.xml", 5, 0.1, True


class PlainHopper(PlainBody):
    file, frame_skip, noise, normal_speeds, control, alive = "hopper.xml", 4, 0.005, False, 0.001, 1.0

    def fallen(self) -> bool:
        rest = [*self.data.qpos[2:], *self.data.qvel]
        return not (
            self.data.qpos[1] > 0.7
            and abs(self.data.qpos[2]) < 0.2
            and all(abs(number) < 100 for number in rest)
        )

    def obs(self) -> np.ndarray:
        return np.concatenate(
            [self.data.qpos[1:], [min(max(speed, -10.0), 10.0) for speed in self.data.qvel]]
        )


class PlainWalker(PlainHopper):
    file = "walker2d_v5.xml"

    def fallen(self) -> bool:
        return not (0.8 < self.data.qpos[1] < 2.0 and -1 < self.data.qpos[2] < 1)


class PlainAnt(PlainBody):
    file, frame_skip, noise, normal_speeds, control, alive, contacts = "ant.xml", 5, 0.1, True, 0.5, 1.0, True

    def position(self) -> list[float]:
        return [float(self.data.body("torso").xpos[0])]

    def fallen(self) -> bool:
        return not 0.2 <= self.data.qpos[2] <= 1.0

    def clipped(self) -> list[float]:
        return [min(max(force, -1.0), 1.0) for force in self.data.cfrc_ext[1:].flatten().tolist()]

    def cost(self) -> float:
        return 5e-4 * sum(force**2 for force in self.clipped()) if self.contacts else 0.0

    def obs(self) -> np.ndarray:
        return np.concatenate(
            [self.data.qpos[2:], self.data.qvel, *([self.clipped()] if self.contacts else [])]
        )


class PlainHumanoid(PlainBody):
    file, frame_skip, noise, normal_speeds, gain, contacts = "humanoid.xml", 5, 0.01, False, 0.4, True
    forward, alive = 1.25, 5.0

    def position(self) -> list[float]:
        bodies = range(1, 14)
        return [
            sum(self.model.body_mass[body] * self.data.xipos[body, 0] for body in bodies)
            / sum(self.model.body_mass[body] for body in bodies)
        ]

    def fallen(self) -> bool:
        return not 1.0 < self.data.qpos[2] < 2.0

    def cost(self) -> float:
        return (
            min(5e-7 * sum(force**2 for force in self.data.cfrc_ext.flatten().tolist()), 10.0)
            if self.contacts
            else 0.0
        )

    def obs(self) -> np.ndarray:
        data = self.data
        parts = [data.qpos[2:], data.qvel, data.cinert[1:], data.cvel[1:], data.qfrc_actuator[6:]]
        parts += [data.cfrc_ext[1:]] if self.contacts else []
        return np.concatenate([np.asarray(part).flatten() for part in parts])


ROBOTS: dict[str, tuple[type[PlainBody], str]] = {
    "ant": (PlainAnt, "Ant-v5"),
    "half_cheetah": (PlainCheetah, "HalfCheetah-v5"),
    "hopper": (PlainHopper, "Hopper-v5"),
    "walker2d": (PlainWalker, "Walker2d-v5"),
    "humanoid": (PlainHumanoid, "Humanoid-v5"),
}


class PlainAntWithoutContacts(PlainAnt):
    contacts = False


class PlainHumanoidWithoutContacts(PlainHumanoid):
    contacts = False


ALL = [
    *((body, plain) for body, (plain, _) in ROBOTS.items()),
    ("ant", PlainAntWithoutContacts),
    ("humanoid", PlainHumanoidWithoutContacts),
]


@pytest.mark.parametrize("body, plain", ALL)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_physics_equals_a_plain_mj_step_loop_bit_for_bit(body: str, plain: type[PlainBody], threads: int):
    assert_same_as_plain(make_family("BodyParams", body=body, contacts=plain.contacts), plain, threads)


def test_the_comparison_notices_constants_that_are_not_derived_anew():
    class Stale(PlainHopper):
        def parametrise(self) -> None:
            super().parametrise()
            self.model.dof_invweight0[:] *= 1 + 1e-9

    with pytest.raises(AssertionError):
        assert_same_as_plain(make_family("BodyParams", body="hopper"), Stale, 1)


@pytest.mark.parametrize("contacts", [False, True])
@pytest.mark.parametrize("body", ROBOTS)
def test_with_exponents_0_it_is_gymnasiums_task(body: str, contacts: bool, monkeypatch: pytest.MonkeyPatch):
    plain, name = ROBOTS[body]
    if contacts and not plain.contacts:
        with pytest.raises(OptionError, match="no contact cost"):
            make_family("BodyParams", body=body, contacts=True)
        return
    off = (
        {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
        if plain.contacts and not contacts
        else {}
    )
    peer, family = peer_of(monkeypatch, name, **off), make_family("BodyParams", body=body, contacts=contacts)
    assert family.spec.obs_space.shape == peer.observation_space.shape
    played, rng, ends = Played(family, 1), np.random.default_rng(0), 0
    assert isinstance(played.shard, BodyParamsShard)
    for seed in range(4):
        rows = played.reset([0], np.zeros((1, family.spec.task_dim)), [seed])
        assert isinstance(rows.obs, np.ndarray)
        peer.reset()
        peer.set_state(played.shard.qpos[0].copy(), played.shard.qvel[0].copy())
        start = peer._get_obs().astype(np.float32)
        known = ROBOT_TASKS[
            RobotName[body]
        ].observed  # Gymnasium does not ask for the contact forces of a start.
        assert (rows.obs[0, :known] == start[:known]).all()
        for _ in range(100):
            action = random_actions(rng, family, 1)
            played.step([0], action)
            obs, reward, terminated, _, _ = peer.step(plain.gain * action[0].astype(np.float64))
            assert (rows.obs[0] == obs.astype(np.float32)).all()
            assert rows.terminated[0] == terminated
            assert rows.reward[0] == pytest.approx(float(reward), rel=1e-11, abs=1e-11)
            if terminated:
                ends += 1
                break
    peer.close()
    assert ends or body == "half_cheetah"


def test_the_task_has_a_number_for_each_body_and_joint_and_one_for_gravity():
    for body, (plain, _) in ROBOTS.items():
        model = plain().model
        for names, count in (
            (["mass"], model.nbody - 1),
            (["damping"], int((model.dof_damping > 0).sum())),
            (["gravity"], 1),
            (["gravity", "mass"], model.nbody),
            (list(PARAMETERS), model.nbody + int((model.dof_damping > 0).sum())),
        ):
            assert make_family("BodyParams", body=body, parameters=names).spec.task_dim == count


@pytest.mark.parametrize(
    "names, says", [(["mas"], "mean 'mass'"), ([], "at least one"), (["mass", "mass"], "none twice")]
)
def test_wrong_parameters_are_refused_in_a_sentence(names: list[str], says: str):
    with pytest.raises(OptionError, match=says):
        make_family("BodyParams", parameters=names)


def test_the_exponents_are_uniform_and_the_splits_disjoint():
    family = make_family("BodyParams", limit=2.0)
    assert family.spec.split is Split.disjoint
    tasks = family.sample_tasks(np.random.default_rng(0), 8000, "train")
    assert tasks.min() >= -2 and tasks.max() <= 2
    share = (np.quantile(tasks, np.linspace(0, 1, 11), axis=0) + 2) / 4
    assert np.abs(share - np.linspace(0, 1, 11)[:, None]).max() < 0.03


@pytest.mark.parametrize("body", ROBOTS)
def test_each_parameter_changes_its_fields_by_its_factor_and_nothing_else(body: str):
    stock = ROBOTS[body][0]().model
    for parameter in PARAMETERS:
        family = make_family("BodyParams", body=body, parameters=[parameter], base=2.0)
        played = Played(family, 2)
        assert isinstance(played.shard, BodyParamsShard)
        rows = played.reset(
            [0, 1], np.stack([np.zeros(family.spec.task_dim), np.ones(family.spec.task_dim)]), [3, 3]
        )
        same, twice = (played.shard.batch.get_model(slot) for slot in (0, 1))
        for field in ("body_mass", "body_inertia", "dof_damping", "opt.gravity"):
            values = [
                one.opt.gravity if field == "opt.gravity" else getattr(one, field)
                for one in (stock, same, twice)
            ]
            assert (values[1] == values[0]).all()
            assert (values[2] == (2 if field in PARAMETERS[parameter] else 1) * values[0]).all()
        rng = np.random.default_rng(0)
        for _ in range(20):
            rows = played.step([0, 1], np.tile(random_actions(rng, family, 1), (2, 1)))
        assert isinstance(rows.obs, np.ndarray)
        assert (rows.obs[0] != rows.obs[1]).any()


def test_the_return_of_random_actions_is_the_reported_one():
    assert_random_returns_are_the_reported_ones(make_family("BodyParams"))
    for other in (
        {"body": "hopper"},
        {"parameters": ["mass"]},
        {"base": 1.4},
        {"contacts": True},
        {"max_episode_steps": 100},
    ):
        options: dict[str, Any] = other
        assert make_family("BodyParams", **options).spec.reference is None

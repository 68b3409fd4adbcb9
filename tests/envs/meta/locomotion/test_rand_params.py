"""Walkers and hoppers with parameters of their own, against plain MuJoCo and Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.locomotion.rand_params import BASES, HOPPER, WALKER, PlanarRobot, RandParamsShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones, peer_of
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain, mujoco
from tests.envs.meta.played import Played, random_actions


class PlainRandom(PlainRobot):
    """The definition, in scalars; a new model for every task."""

    frame_skip, noise, normal_speeds = 4, 0.005, False
    counts: tuple[int, int, int]

    def parametrise(self) -> None:
        bodies, geoms, freedoms = self.counts
        stock = type(self)().model
        numbers = iter(self.task)
        for body in range(bodies):
            self.model.body_mass[body] = stock.body_mass[body] * 1.5 ** next(numbers)
        for body in range(bodies):
            for axis in range(3):
                self.model.body_inertia[body, axis] = stock.body_inertia[body, axis] * 1.5 ** next(numbers)
        for geom in range(geoms):
            for kind in range(3):
                self.model.geom_friction[geom, kind] = stock.geom_friction[geom, kind] * 1.5 ** next(numbers)
        for freedom in range(freedoms):
            self.model.dof_damping[freedom] = stock.dof_damping[freedom] * 1.3 ** next(numbers)
        assert next(numbers, None) is None

    def position(self) -> list[float]:
        return [float(self.data.qpos[0])]

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        return velocity[0] + 1 - 0.001 * sum(torque**2 for torque in torques)

    def obs(self) -> np.ndarray:
        return np.concatenate(
            [self.data.qpos[1:], [min(max(speed, -10.0), 10.0) for speed in self.data.qvel]]
        )


class PlainWalker(PlainRandom):
    file, counts = "walker2d_v5.xml", (8, 8, 9)

    def fallen(self) -> bool:
        return not (0.8 < self.data.qpos[1] < 2.0 and -1 < self.data.qpos[2] < 1)


class PlainHopper(PlainRandom):
    file, counts = "hopper.xml", (5, 5, 6)

    def fallen(self) -> bool:
        rest = [*self.data.qpos[2:], *self.data.qvel]
        return not (
            self.data.qpos[1] > 0.7
            and abs(self.data.qpos[2]) < 0.2
            and all(abs(number) < 100 for number in rest)
        )


ROBOTS: list[tuple[str, type[PlainRandom], PlanarRobot, int]] = [
    ("Walker2DRandParams", PlainWalker, WALKER, 65),
    ("HopperRandParams", PlainHopper, HOPPER, 41),
]
NAMES = [robot[0] for robot in ROBOTS]


@pytest.mark.parametrize("name, plain", [robot[:2] for robot in ROBOTS])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_physics_equals_a_plain_mj_step_loop_bit_for_bit(
    name: str, plain: type[PlainRandom], threads: int
):
    assert_same_as_plain(make_family(name), plain, threads)


def test_the_comparison_notices_a_parameter_that_is_slightly_wrong():
    class Heavier(PlainHopper):
        def parametrise(self) -> None:
            super().parametrise()
            self.model.body_mass[2] *= 1 + 1e-9

    with pytest.raises(AssertionError):
        assert_same_as_plain(make_family("HopperRandParams"), Heavier, 1)


@pytest.mark.parametrize("name, plain, robot, count", ROBOTS, ids=NAMES)
def test_the_task_has_the_published_number_of_parameters(
    name: str, plain: Any, robot: PlanarRobot, count: int
):
    family, model = make_family(name), plain().model
    assert family.spec.task_dim == count
    assert robot.sizes == {field: getattr(model, field).size for field in BASES}
    assert (family.spec.obs_space.shape, family.spec.action_space.shape) == (
        (model.nq - 1 + model.nv,),
        (model.nu,),
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_exponents_are_uniform_and_the_splits_disjoint(name: str):
    family = make_family(name)
    assert family.spec.split is Split.disjoint
    tasks = family.sample_tasks(np.random.default_rng(0), 4000, "train")
    assert tasks.min() >= -3 and tasks.max() <= 3
    share = (np.quantile(tasks, np.linspace(0, 1, 11), axis=0) + 3) / 6
    assert np.abs(share - np.linspace(0, 1, 11)[:, None]).max() < 0.04
    off_diagonal = np.asarray(np.corrcoef(tasks.T)) - np.eye(tasks.shape[1])
    assert np.abs(off_diagonal).max() < 0.08


@pytest.mark.parametrize(
    "name, peer_name", [("Walker2DRandParams", "Walker2d-v5"), ("HopperRandParams", "Hopper-v5")]
)
def test_with_exponents_0_it_is_gymnasiums_robot(name: str, peer_name: str, monkeypatch: pytest.MonkeyPatch):
    """Whose bonus alone is not paid on the row of a fall."""
    peer, family = peer_of(monkeypatch, peer_name), make_family(name)
    played, rng, falls = Played(family, 1), np.random.default_rng(0), 0
    assert isinstance(played.shard, RandParamsShard)
    for seed in range(5):
        rows = played.reset([0], np.zeros((1, family.spec.task_dim)), [seed])
        assert isinstance(rows.obs, np.ndarray)
        peer.reset()
        peer.set_state(played.shard.qpos[0].copy(), played.shard.qvel[0].copy())
        assert (rows.obs[0] == peer._get_obs().astype(np.float32)).all()
        for _ in range(100):
            action = random_actions(rng, family, 1)
            played.step([0], action)
            obs, reward, terminated, _, _ = peer.step(action[0].astype(np.float64))
            assert (rows.obs[0] == obs.astype(np.float32)).all()
            assert rows.terminated[0] == terminated
            assert rows.reward[0] == pytest.approx(float(reward) + terminated, rel=1e-12, abs=1e-12)
            if terminated:
                falls += 1
                break
    peer.close()
    assert falls


@pytest.mark.parametrize("name, plain, robot, count", ROBOTS, ids=NAMES)
def test_each_kind_of_parameter_changes_the_motion(name: str, plain: Any, robot: PlanarRobot, count: int):
    family, played = make_family(name), Played(make_family(name), 5)
    tasks, start = np.zeros((5, count)), 0
    for slot, size in enumerate(robot.sizes.values(), 1):
        tasks[slot, start : start + size] = 2.5
        start += size
    rows = played.reset(np.arange(5), tasks, np.zeros(5))
    rng = np.random.default_rng(2)
    for _ in range(40):
        rows = played.step(np.arange(5), np.tile(random_actions(rng, family, 1), (5, 1)))
    assert isinstance(rows.obs, np.ndarray)
    assert len({rows.obs[slot].tobytes() for slot in range(5)}) == 5


def test_the_derived_constants_stay_those_of_the_stock_model():
    family = make_family("HopperRandParams")
    played = Played(family, 1)
    assert isinstance(played.shard, RandParamsShard)
    played.reset([0], family.sample_tasks(np.random.default_rng(0), 1, "train"), [0])
    own, stock = played.shard.batch.get_model(0), PlainHopper().model
    assert (own.body_mass != stock.body_mass)[1:].all()
    assert (own.dof_invweight0 == stock.dof_invweight0).all() and (
        own.body_subtreemass == stock.body_subtreemass
    ).all()
    mujoco.mj_setConst(own, mujoco.MjData(own))
    assert (own.dof_invweight0 != stock.dof_invweight0).any()


@pytest.mark.parametrize("name", NAMES)
def test_the_return_of_random_actions_is_the_reported_one(name: str):
    assert_random_returns_are_the_reported_ones(make_family(name), tasks=200)
    assert make_family(name, max_episode_steps=100).spec.reference is None

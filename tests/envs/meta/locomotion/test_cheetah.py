"""The half cheetah's families against plain MuJoCo and Gymnasium's HalfCheetah, and their divergence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from envs.base import Rows, Split
from envs.meta.locomotion.cheetah import CheetahShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones, peer_of
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain
from tests.envs.meta.played import Played, random_actions

NAMES = ("CheetahDir", "CheetahDirSparse", "HalfCheetahVel")


class PlainCheetah(PlainRobot):
    """The definition of CheetahDir, in scalars."""

    file, frame_skip, noise, normal_speeds = "half_cheetah.xml", 5, 0.1, True

    def position(self) -> list[float]:
        return [float(self.data.qpos[0])]

    def worth(self, velocity: float) -> float:
        return self.task[0] * velocity

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        return self.worth(velocity[0]) - 0.05 * sum(torque**2 for torque in torques)

    def obs(self) -> np.ndarray:
        return np.concatenate([self.data.qpos[1:], self.data.qvel, self.data.body("torso").xpos])


class PlainSparse(PlainCheetah):
    """Paid only beyond 0.2, which a random cheetah reaches on both sides."""

    def __init__(self, seen: set[float]) -> None:
        super().__init__()
        self.seen = seen

    def worth(self, velocity: float) -> float:
        x = float(self.data.body("torso").xpos[0])
        side = float(np.sign(x)) if abs(x) >= 0.2 else 0.0
        self.seen.add(side)
        return abs(side) * super().worth(velocity)


class PlainVel(PlainCheetah):
    """Paid for a velocity."""

    def worth(self, velocity: float) -> float:
        return -abs(velocity - self.task[0])


def cheetahs(name: str, num_slots: int) -> tuple[Played, CheetahShard]:
    played = Played(make_family(name), num_slots)
    assert isinstance(played.shard, CheetahShard)
    return played, played.shard


def obs_of(rows: Rows) -> np.ndarray:
    assert isinstance(rows.obs, np.ndarray)
    return rows.obs


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name, plain", [("CheetahDir", PlainCheetah), ("HalfCheetahVel", PlainVel)])
def test_the_physics_and_rewards_equal_a_plain_mj_step_loop(
    name: str, plain: type[PlainCheetah], threads: int
):
    assert_same_as_plain(make_family(name), plain, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_sparse_reward_is_paid_beyond_the_threshold_on_both_sides(threads: int):
    seen: set[float] = set()
    assert_same_as_plain(make_family("CheetahDirSparse", threshold=0.2), lambda: PlainSparse(seen), threads)
    assert seen == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("settings", [{}, {"threshold": 10.0, "max_episode_steps": 400}], ids=str)
def test_success_is_to_be_beyond_the_threshold_on_the_right_side(settings: dict[str, float]):
    family = make_family("CheetahDirSparse", **settings)
    played, threshold = Played(family, 4), settings.get("threshold", 5.0)
    assert isinstance(played.shard, CheetahShard)
    rows = played.reset(np.arange(4), [[1.0], [1.0], [-1.0], [-1.0]], np.arange(4))
    assert not rows.info[:, 2].any()
    played.shard.qpos[:, 0] = np.array([1, -1, -1, 1]) * (threshold + 0.5)
    played.step(np.arange(4), np.zeros((4, 6)))
    assert rows.info[:, 2].tolist() == [1, 0, 1, 0]
    played.shard.qpos[:, 0] = threshold - 0.5
    played.step(np.arange(4), np.zeros((4, 6)))
    assert not rows.info[:, 2].any() and (rows.reward == 0).all()


def test_velocity_is_current_and_the_torso_lags():
    played, shard = cheetahs("HalfCheetahVel", 1)
    played.reset([0], [[1.0]], [0])
    before = float(shard.qpos[0, 0])
    rows = played.step([0], np.full((1, 6), 0.5))
    x = float(shard.qpos[0, 0])
    assert rows.info[0].tolist() == [pytest.approx((x - before) / 0.05), x]
    assert obs_of(rows)[0, 17] != np.float32(x)
    assert obs_of(rows)[0, 17] == pytest.approx(x, abs=0.05)


def test_observations_and_rewards_equal_gymnasiums_half_cheetah(monkeypatch: pytest.MonkeyPatch):
    """The 17 numbers of Gymnasium's are our first ones, and running forward is its task."""
    peer = peer_of(monkeypatch, "HalfCheetah-v5", ctrl_cost_weight=0.05)
    played, shard = cheetahs("CheetahDir", 1)
    rng, family = np.random.default_rng(0), make_family("CheetahDir")
    rows = played.reset([0], [[1.0]], [0])
    peer.reset()
    peer.set_state(shard.qpos[0].copy(), shard.qvel[0].copy())
    for _ in range(200):
        action = random_actions(rng, family, 1)
        played.step([0], action)
        obs, reward, terminated, _, info = peer.step(action[0].astype(np.float64))
        assert (obs_of(rows)[0, :17] == obs.astype(np.float32)).all()
        assert (obs_of(rows)[0, 17:] == peer.data.body("torso").xpos.astype(np.float32)).all()
        assert rows.reward[0] == pytest.approx(reward, rel=1e-12, abs=1e-12)
        assert rows.info[0, 1] == info["x_position"]
        assert rows.info[0, 0] == pytest.approx(info["x_velocity"], rel=1e-12)
        assert not terminated and not rows.terminated[0]
    peer.close()


@pytest.mark.parametrize("name", ["CheetahDir", "CheetahDirSparse"])
def test_both_directions_come_equally_often(name: str):
    family = make_family(name)
    assert family.spec.split is Split.shared
    tasks = family.sample_tasks(np.random.default_rng(0), 20, "test")[:, 0].tolist()
    assert [tasks.count(direction) for direction in (-1.0, 1.0)] == [10, 10]


@pytest.mark.parametrize("name", ["CheetahDir", "CheetahDirSparse"])
def test_the_reported_velocity_is_that_in_the_direction_of_the_task(name: str):
    played, _ = cheetahs(name, 2)
    rows = played.reset([0, 1], [[1.0], [-1.0]], [0, 0])
    played.step([0, 1], np.full((2, 6), 0.7))
    assert rows.info[0, 0] == -rows.info[1, 0] != 0
    assert rows.info[0, 1] == rows.info[1, 1]


@pytest.mark.parametrize("highest", [3.0, 2.0])
def test_velocities_are_uniform(highest: float):
    family = make_family("HalfCheetahVel", highest_velocity=highest)
    assert family.spec.split is Split.disjoint
    tasks = family.sample_tasks(np.random.default_rng(0), 20_000, "train")[:, 0] / highest
    assert 0 <= tasks.min() and tasks.max() <= 1
    assert np.abs(np.quantile(tasks, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


@pytest.mark.parametrize("value", [np.nan, -1e300])
@pytest.mark.parametrize("name", NAMES)
def test_a_diverged_cheetah_ends_its_episode_with_finite_numbers(
    name: str,
    value: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    (twin, _), (played, shard) = cheetahs(name, 3), cheetahs(name, 3)
    for one in (twin, played):
        one.reset(np.arange(3), np.ones((3, 1)), np.arange(3))
    shard.qvel[1, 3] = value
    actions = np.full((3, 6), 0.3)
    twin.step(np.arange(3), actions)
    rows = played.step(np.arange(3), actions)
    assert rows.terminated.tolist() == [False, True, False]
    assert np.isfinite(obs_of(rows)).all() and np.isfinite(rows.info).all()
    worth = -1.0 if name == "HalfCheetahVel" else 0.0
    assert rows.reward[1] == pytest.approx(worth - 0.05 * 6 * 0.3**2), "as of velocity 0"
    assert [played.bits(slot) == twin.bits(slot) for slot in range(3)] == [True, False, True]
    for one in (twin, played):
        one.reset([1], [[1.0]], [7])
        one.step(np.arange(3), actions)
    assert [played.bits(slot) for slot in range(3)] == [twin.bits(slot) for slot in range(3)]
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir()), "MuJoCo writes no log into the working directory"


@pytest.mark.parametrize("name", NAMES)
def test_the_returns_of_random_are_the_reported_ones(name: str):
    assert_random_returns_are_the_reported_ones(make_family(name))
    assert make_family(name, max_episode_steps=100).spec.reference is None

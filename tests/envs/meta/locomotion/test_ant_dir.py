"""AntDir against plain MuJoCo, against Gymnasium's Ant, and when the simulation goes wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mujoco.batch import SimulationError

from envs.base import Rows, SlotError, Split
from envs.meta.locomotion.ant_dir import AntDirShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones, peer_of
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain, mujoco
from tests.envs.meta.played import Played, random_actions


class PlainAnt(PlainRobot):
    """The definition, in scalars."""

    file, frame_skip, noise, normal_speeds = "ant.xml", 5, 0.1, True

    def position(self) -> list[float]:
        return self.data.body("torso").xpos[:2].tolist()

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        along = velocity[0] * math.cos(self.task[0]) + velocity[1] * math.sin(self.task[0])
        return along - 0.5 * sum(torque**2 for torque in torques) + 1.0

    def fallen(self) -> bool:
        return not 0.2 <= self.data.qpos[2] <= 1.0

    def obs(self) -> np.ndarray:
        return np.concatenate([self.data.qpos[2:], self.data.qvel])


class PlainAnt2D(PlainAnt):
    """The direction is a vector, any height from 0 is healthy, and contacts cost."""

    contacts = True

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        along = velocity[0] * self.task[0] + velocity[1] * self.task[1]
        forces = self.data.cfrc_ext.ravel().tolist()
        contact = 0.5 * 1e-3 * sum(min(max(force, -1.0), 1.0) ** 2 for force in forces)
        return along - 0.5 * sum(torque**2 for torque in torques) - contact + 1.0

    def fallen(self) -> bool:
        return not 0.0 <= self.data.qpos[2] <= 1.0


def ant_shard(num_slots: int, threads: int = 1, **options: Any) -> tuple[Played, AntDirShard]:
    played = Played(make_family("AntDir", **options), num_slots, threads)
    assert isinstance(played.shard, AntDirShard)
    return played, played.shard


def obs_of(rows: Rows) -> np.ndarray:
    assert isinstance(rows.obs, np.ndarray)
    return rows.obs


@pytest.mark.parametrize("variant", ["legacy", "circle"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_physics_equals_a_plain_mj_step_loop_bit_for_bit(variant: str, threads: int):
    assert_same_as_plain(make_family("AntDir", variant=variant), PlainAnt, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_2d_ant_with_contacts_equals_a_plain_mj_step_loop_bit_for_bit(threads: int):
    assert_same_as_plain(make_family("AntDir", variant="direction_2d", contacts=True), PlainAnt2D, threads)


@pytest.mark.parametrize(
    "variant, fallen", [("circle", [True, True, False, True]), ("direction_2d", [True, False, False, True])]
)
def test_healthy_heights_are_those_of_the_variant(variant: str, fallen: list[bool]):
    _, shard = ant_shard(4, variant=variant)
    shard.qpos[:, 2] = [-0.01, 0.19, 0.21, 1.01]
    assert shard.fallen(slice(None)).tolist() == fallen
    assert shard.fallen(np.array([1, 3])).tolist() == [fallen[1], fallen[3]]


def test_contact_costs_change_rewards_only():
    played = [ant_shard(1, contacts=contacts)[0] for contacts in (False, True)]
    costs: list[float] = []
    for one in played:
        one.reset([0], [[1.0]], [0])
    for actions in random_actions(np.random.default_rng(0), make_family("AntDir"), 100, 1):
        free, charged = (one.step([0], actions) for one in played)
        assert (obs_of(free) == obs_of(charged)).all() and (free.info == charged.info).all()
        costs.append(free.reward[0] - charged.reward[0])
    assert min(costs) == 0 and 1e-3 < max(costs) < 84 * 0.5e-3


def test_the_comparison_with_plain_mujoco_notices_a_changed_action():
    class Nudged(PlainAnt):
        def step(self, action: np.ndarray) -> float:
            return super().step(action + 1e-9)

    with pytest.raises(AssertionError):
        assert_same_as_plain(make_family("AntDir"), Nudged, 1)


def test_velocity_and_position_are_the_lagged_ones():
    played, shard = ant_shard(1)
    played.reset([0], [[0.0]], [0])
    rows = played.step([0], np.full((1, 8), 0.5))
    assert rows.info[0, 1] != shard.qpos[0, 0]
    assert rows.info[0, 1] == pytest.approx(shard.qpos[0, 0], abs=0.01)


def test_observations_and_rewards_equal_gymnasiums_ant(monkeypatch: pytest.MonkeyPatch):
    """Towards 0 radians the reward is Gymnasium's, whose bonus alone is not paid on the row of a fall."""
    peer = peer_of(monkeypatch, "Ant-v5", include_cfrc_ext_in_observation=False, contact_cost_weight=0.0)
    played, shard = ant_shard(1, variant="forward_backward")
    rng, falls = np.random.default_rng(0), 0
    for seed in range(10):
        rows = played.reset([0], [[0.0]], [seed])
        peer.reset()
        peer.set_state(shard.qpos[0].copy(), shard.qvel[0].copy())
        for _ in range(100):
            action = random_actions(rng, make_family("AntDir"), 1)
            played.step([0], action)
            obs, reward, terminated, _, _ = peer.step(action[0].astype(np.float64))
            assert (obs_of(rows)[0] == obs.astype(np.float32)).all()
            assert rows.terminated[0] == terminated
            assert rows.reward[0] == pytest.approx(reward + terminated, rel=1e-12, abs=1e-12)
            if terminated:
                falls += 1
                break
    peer.close()
    assert falls


def test_the_variants_have_their_directions():
    rng = np.random.default_rng(0)
    for variant, values in (("legacy", {-1.0, 1.0}), ("forward_backward", {0.0, math.pi})):
        family = make_family("AntDir", variant=variant)
        assert family.spec.split is Split.shared
        tasks = family.sample_tasks(rng, 20, "test")[:, 0].tolist()
        assert set(tasks) == values
        assert tasks.count(tasks[0]) == 10
    family = make_family("AntDir", variant="circle")
    assert family.spec.split is Split.disjoint
    angles = family.sample_tasks(rng, 20_000, "train")[:, 0] / (2 * math.pi)
    planar = make_family("AntDir", variant="direction_2d")
    assert (planar.spec.split, planar.spec.task_dim) == (Split.disjoint, 2)
    vectors = planar.sample_tasks(rng, 20_000, "train")
    assert np.hypot(vectors[:, 0], vectors[:, 1]) == pytest.approx(1.0, abs=1e-12)
    turns = np.arctan2(vectors[:, 1], vectors[:, 0]) / (2 * math.pi) + 0.5
    assert np.abs(np.quantile(turns, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015
    assert np.abs(np.quantile(angles, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


def test_the_returns_of_random_are_the_reported_ones():
    assert_random_returns_are_the_reported_ones(make_family("AntDir"))
    for other in ({"variant": "circle"}, {"contacts": True}, {"max_episode_steps": 100}):
        assert make_family("AntDir", **other).spec.reference is None


def test_reset_noise_has_its_distribution():
    played, shard = ant_shard(400)
    played.reset(np.arange(400), np.ones((400, 1)), np.arange(400))
    noise = shard.qpos - mujoco.MjData(shard.model).qpos
    assert np.abs(noise).max() <= 0.1
    assert noise.std() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert shard.qvel.std() == pytest.approx(0.1, rel=0.05)


def diverge(played: Played, shard: AntDirShard, slot: int) -> Rows:
    shard.qvel[slot, 3] = np.nan
    return played.step(np.arange(3), np.full((3, 8), 0.3))


def test_a_diverged_simulation_ends_its_episode_with_finite_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (twin, _), (played, shard) = ant_shard(3), ant_shard(3)
    for one in (twin, played):
        one.reset(np.arange(3), np.ones((3, 1)), np.arange(3))
    rows = diverge(played, shard, 1)
    twin.step(np.arange(3), np.full((3, 8), 0.3))
    assert rows.terminated.tolist() == [False, True, False]
    assert np.isfinite(obs_of(rows)).all() and np.isfinite(rows.info).all()
    assert rows.reward[1] == pytest.approx(1.0 - 0.5 * 8 * 0.3**2)
    assert [played.bits(slot) == twin.bits(slot) for slot in range(3)] == [True, False, True]
    for one in (twin, played):
        one.reset([1], [[1.0]], [7])
        one.step(np.arange(3), np.full((3, 8), 0.3))
    assert [played.bits(slot) for slot in range(3)] == [twin.bits(slot) for slot in range(3)]
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir()), "MuJoCo writes no log into the working directory"


def test_a_second_divergence_in_the_same_slot_is_noticed_too():
    played, shard = ant_shard(3)
    for seed in (0, 1):
        played.reset(np.arange(3), np.ones((3, 1)), np.full(3, seed))
        assert diverge(played, shard, 1).terminated.tolist() == [False, True, False]


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_a_state_that_left_the_numbers_in_the_last_frame_ends_the_episode(
    value: float, monkeypatch: pytest.MonkeyPatch
):
    played, shard = ant_shard(3)
    played.reset(np.arange(3), np.ones((3, 1)), np.arange(3))
    real = shard.batch.step

    def step(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        shard.qvel[2, 5] = shard.qpos[2, 0] = value

    monkeypatch.setattr(shard.batch, "step", step)
    rows = played.step(np.arange(3), np.zeros((3, 8)))
    assert rows.terminated.tolist() == [False, False, True]
    assert np.isfinite(obs_of(rows)).all() and np.isfinite(rows.info).all() and np.isfinite(rows.reward).all()


def test_an_error_inside_mujoco_names_its_slot(monkeypatch: pytest.MonkeyPatch):
    played, shard = ant_shard(3)
    played.reset(np.arange(3), np.ones((3, 1)), np.arange(3))

    def fail(*_: Any, **__: Any) -> None:
        raise SimulationError(np.array([2]), "the stack overflowed")

    monkeypatch.setattr(shard.batch, "step", fail)
    with pytest.raises(SlotError, match="the stack overflowed") as caught:
        played.step(np.arange(3), np.zeros((3, 8)))
    assert caught.value.slot == 2


def test_a_picture_shows_the_ant_or_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    played, shard = ant_shard(2)
    played.reset([0, 1], np.ones((2, 1)), [0, 1])
    try:
        picture = shard.render(1)
    except RuntimeError as error:
        assert "MUJOCO_GL" in str(error)
    else:
        assert picture.dtype == np.uint8 and picture.ndim == 3
        assert len(np.unique(picture)) > 20
        assert (picture != shard.render(0)).any()
    shard.close()


def test_a_missing_opengl_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(mujoco, "Renderer", fail)
    played, shard = ant_shard(1)
    played.reset([0], [[1.0]], [0])
    with pytest.raises(RuntimeError, match=r"eglQueryString.*MUJOCO_GL=egl"):
        shard.render(0)

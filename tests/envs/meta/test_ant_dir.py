"""AntDir against plain MuJoCo, against Gymnasium's Ant, and when the simulation goes wrong."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from mujoco.batch import SimulationError

from envs.base import Rows, SlotError, Split
from envs.meta.ant_dir import AntDirShard
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions

mujoco: Any = importlib.import_module("mujoco")
"""Any, since its names come from C extensions, which a type checker cannot see."""

MODEL = str(files("gymnasium") / "envs/mujoco/assets/ant.xml")


class PlainAnt:
    """One ant on one MjData, stepped frame by frame: the definition, in scalars."""

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_path(MODEL)
        self.data = mujoco.MjData(self.model)
        self.direction = 0.0

    def reset(self, direction: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] += rng.uniform(-0.1, 0.1, 15)
        self.data.qvel[:] += 0.1 * rng.standard_normal(14)
        mujoco.mj_forward(self.model, self.data)
        self.direction = direction

    def step(self, action: np.ndarray) -> tuple[float, float, bool]:
        """The reward, the velocity along the direction, and whether it fell."""
        x, y = self.data.body("torso").xpos[:2].tolist()
        self.data.ctrl[:] = action
        for _ in range(5):
            mujoco.mj_step(self.model, self.data)
        after_x, after_y = self.data.body("torso").xpos[:2].tolist()
        velocity = (after_x - x) / 0.05 * math.cos(self.direction) + (after_y - y) / 0.05 * math.sin(self.direction)
        reward = velocity - 0.5 * sum(float(torque) ** 2 for torque in action) + 1.0
        return reward, velocity, not 0.2 <= self.data.qpos[2] <= 1.0

    @property
    def obs(self) -> np.ndarray:
        return np.concatenate([self.data.qpos[2:], self.data.qvel]).astype(np.float32)


def ant_shard(num_slots: int, threads: int = 1, **options: Any) -> tuple[Played, AntDirShard]:
    played = Played(make_family("AntDir", **options), num_slots, threads)
    assert isinstance(played.shard, AntDirShard)
    return played, played.shard


def obs_of(rows: Rows) -> np.ndarray:
    assert isinstance(rows.obs, np.ndarray)
    return rows.obs


def same_as_plain(threads: int, nudge: float = 0.0) -> bool:
    """Play 200 rounds of partial steps and resets on a shard and on plain ants; the actions of the plain ants are nudged once."""
    played, shard = ant_shard(3, threads)
    rng, plain, starts = np.random.default_rng(threads), [PlainAnt() for _ in range(3)], 0
    equal = True

    def begin(slots: np.ndarray) -> None:
        directions, seeds = rng.choice([-1.0, 1.0], len(slots)), rng.integers(2**63, size=len(slots))
        played.reset(slots, directions[:, None], seeds)
        for slot, direction, seed in zip(slots, directions, seeds, strict=True):
            plain[slot].reset(direction, int(seed))

    begin(np.arange(3))
    for round_ in range(200):
        slots = np.arange(3) if rng.random() < 0.6 else np.flatnonzero(rng.random(3) < 0.7)
        if not len(slots):
            continue
        actions = random_actions(rng, make_family("AntDir"), len(slots))
        rows = played.step(slots, actions)
        for slot, action in zip(slots, actions.astype(np.float64), strict=True):
            reward, velocity, fallen = plain[slot].step(action + nudge * (round_ == 10))
            data = plain[slot].data
            equal &= bool((shard._qpos[slot] == data.qpos).all() and (shard._qvel[slot] == data.qvel).all())
            equal &= bool((obs_of(rows)[slot] == plain[slot].obs).all() and rows.terminated[slot] == fallen)
            equal &= rows.info[slot].tolist() == [velocity, *data.body("torso").xpos[:2]]
            equal &= nudge != 0.0 or rows.reward[slot] == pytest.approx(reward, rel=1e-13, abs=1e-13)
        again = np.array([slot for slot in slots if rows.terminated[slot] or rng.random() < 0.02], np.int64)
        if len(again):
            begin(again)
            starts += 1
            equal &= all((obs_of(rows)[slot] == plain[slot].obs).all() and rows.info[slot, 0] == 0.0 for slot in again)
    assert starts > 2
    return equal


@pytest.mark.parametrize("threads", [1, 2])
def test_the_physics_equals_a_plain_mj_step_loop_bit_for_bit(threads: int):
    assert same_as_plain(threads)


def test_the_comparison_with_plain_mujoco_notices_a_changed_action():
    assert not same_as_plain(1, nudge=1e-9)


def test_velocity_and_position_are_the_lagged_ones():
    played, shard = ant_shard(1)
    played.reset([0], [[0.0]], [0])
    rows = played.step([0], np.full((1, 8), 0.5))
    assert rows.info[0, 1] != shard._qpos[0, 0]
    assert rows.info[0, 1] == pytest.approx(shard._qpos[0, 0], abs=0.01)


def test_observations_and_rewards_equal_gymnasiums_ant(monkeypatch: pytest.MonkeyPatch):
    """Towards 0 radians the reward is Gymnasium's, whose bonus alone is not paid on the row of a fall."""
    if importlib.util.find_spec("imageio") is None:
        # Gymnasium's MuJoCo environments import it to save videos, which nothing here does.
        monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))
    peer = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False, contact_cost_weight=0.0, max_episode_steps=1000).unwrapped
    played, shard = ant_shard(1, variant="forward_backward")
    rng, falls = np.random.default_rng(0), 0
    for seed in range(10):
        rows = played.reset([0], [[0.0]], [seed])
        peer.reset()
        peer.set_state(shard._qpos[0].copy(), shard._qvel[0].copy())  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(100):
            action = random_actions(rng, make_family("AntDir"), 1)
            played.step([0], action)
            obs, reward, terminated, _, _ = peer.step(action[0].astype(np.float64))
            assert (obs_of(rows)[0] == obs.astype(np.float32)).all()
            assert rows.terminated[0] == terminated
            assert rows.reward[0] == pytest.approx(float(reward) + terminated, rel=1e-12, abs=1e-12)
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
    assert np.abs(np.quantile(angles, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


def test_reset_noise_has_its_distribution():
    played, shard = ant_shard(400)
    played.reset(np.arange(400), np.ones((400, 1)), np.arange(400))
    noise = shard._qpos - mujoco.MjData(shard._model).qpos
    assert np.abs(noise).max() <= 0.1
    assert noise.std() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert shard._qvel.std() == pytest.approx(0.1, rel=0.05)


def diverge(played: Played, shard: AntDirShard, slot: int) -> Rows:
    shard._qvel[slot, 3] = np.nan
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
def test_a_state_that_left_the_numbers_in_the_last_frame_ends_the_episode(value: float, monkeypatch: pytest.MonkeyPatch):
    played, shard = ant_shard(3)
    played.reset(np.arange(3), np.ones((3, 1)), np.arange(3))
    real = shard._batch.step

    def step(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        shard._qvel[2, 5] = shard._qpos[2, 0] = value

    monkeypatch.setattr(shard._batch, "step", step)
    rows = played.step(np.arange(3), np.zeros((3, 8)))
    assert rows.terminated.tolist() == [False, False, True]
    assert np.isfinite(obs_of(rows)).all() and np.isfinite(rows.info).all() and np.isfinite(rows.reward).all()


def test_an_error_inside_mujoco_names_its_slot(monkeypatch: pytest.MonkeyPatch):
    played, shard = ant_shard(3)
    played.reset(np.arange(3), np.ones((3, 1)), np.arange(3))

    def fail(*_: Any, **__: Any) -> None:
        raise SimulationError(np.array([2]), "the stack overflowed")

    monkeypatch.setattr(shard._batch, "step", fail)
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

"""The shard of the robots alone: divergence, errors, contact forces, fields of a slot's own, and pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from mujoco.batch import SimulationError
from numpy.typing import NDArray

from envs.base import EnvSpec, Rows, Shelf, SlotError
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.meta.locomotion import mujoco_shard
from envs.meta.locomotion.mujoco_shard import HUGE, MujocoShard, SlotIndex
from envs.meta.locomotion.rand_params import HOPPER
from tests.envs.meta.locomotion.plain_mujoco import mujoco
from tests.envs.meta.played import VARIANTS, Played, family_of, random_actions, variant_name
from utils.options import OptionError

SPEC = EnvSpec(
    "Hopper",
    spaces.Box(-np.inf, np.inf, (12 + 35,), np.float32),
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    1,
    ("x",),
)
STATE = 12
ALL = np.arange(3)
ROBOTS = [variant for variant in VARIANTS if FAMILIES[variant[0]].shelf is Shelf.locomotion]


class Hopper(MujocoShard):
    """A hopper whose task is the factor of its masses.

    Its velocity is rewarded, and it observes its state, what derives from it, and its forces.
    """

    def __init__(self, num_slots: int, threads: int = 1, *, contacts: bool = False) -> None:
        super().__init__(
            num_slots, threads, HOPPER.model, dims=2, fields=("body_mass", "dof_damping"), contacts=contacts
        )
        self.place = self.batch.bind("xipos")
        self.contacts = contacts
        self.bind(Layout(SPEC).allocate(num_slots))

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self.fields["body_mass"][slots] = tasks * self.model.body_mass

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.place[at, 1, ::2]

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        self.rows.info[at, 0] = position[:, 0]
        pain = np.abs(self.contact_forces(at)).max(axis=(1, 2)) if self.contacts else 0.0
        return velocity[:, 0] - ctrl[:, 0] - pain

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        obs[at, :STATE] = np.concatenate([self.qpos[at], self.qvel[at]], axis=1)
        obs[at, STATE : STATE + 5] = self.place[at, :, 0]
        if self.contacts:
            obs[at, STATE + 5 :] = self.contact_forces(at).reshape(-1, 30)

    def start(self, slots: Any = ALL, factor: float = 1.0, seed: int = 0) -> Rows:
        chosen = np.asarray(slots, np.int64)
        self.rows.terminated[chosen] = False
        self.reset(chosen, np.full((len(chosen), 1), factor), chosen.astype(np.uint64) + np.uint64(seed))
        return self.rows

    def go(self, slots: Any = ALL, torque: float = 0.3) -> Rows:
        self.step(np.asarray(slots, np.int64), np.full((len(slots), 3), torque, np.float32))
        return self.rows

    def bits(self) -> list[bytes]:
        rows = self.rows
        assert isinstance(rows.obs, np.ndarray)
        return [
            b"".join(part[slot].tobytes() for part in (rows.obs, rows.reward, rows.terminated, rows.info))
            for slot in range(self.num_slots)
        ]


def finite(rows: Rows) -> bool:
    assert isinstance(rows.obs, np.ndarray)
    return bool(
        np.isfinite(rows.obs).all()
        and np.isfinite(rows.reward).all()
        and np.isfinite(rows.info).all()
        and np.abs(rows.obs).max() <= HUGE
    )


@pytest.mark.parametrize("contacts", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("value", [np.nan, 1e9, -1e300])
def test_a_diverged_simulation_ends_its_episode_with_finite_numbers_and_leaves_the_others_alone(
    contacts: bool, threads: int, value: float
):
    twin, shard = Hopper(3, threads, contacts=contacts), Hopper(3, threads, contacts=contacts)
    for one in (twin, shard):
        one.start()
        for _ in range(20):
            one.go()
    before = shard.rows.info[1, 0]
    shard.qvel[1, 4] = value
    rows, _ = shard.go(), twin.go()
    assert rows.terminated.tolist() == [False, True, False]
    assert finite(rows)
    assert (rows.info[1, 0], rows.reward[1]) == (before, pytest.approx(-0.3)), "no velocity, no forces"
    assert [mine == others for mine, others in zip(shard.bits(), twin.bits(), strict=True)] == [
        True,
        False,
        True,
    ]
    for one in (twin, shard):
        one.start([1], seed=7)
        for _ in range(3):
            one.go()
    assert shard.bits() == twin.bits()
    assert not shard.rows.terminated.any()


def test_a_diverged_slot_that_waits_for_its_reset_does_not_disturb_the_others():
    twin, shard = Hopper(3), Hopper(3)
    for one in (twin, shard):
        one.start()
    shard.qvel[1, 4] = np.nan
    shard.go()
    twin.go()
    for _ in range(5):
        shard.go([0, 2])
        twin.go([0, 2])
    assert [shard.bits()[slot] == twin.bits()[slot] for slot in (0, 2)] == [True, True]
    assert shard.rows.terminated.tolist() == [False, True, False]


def test_a_second_divergence_in_the_same_slot_is_noticed_too():
    shard = Hopper(3)
    for seed in (0, 1):
        assert not shard.start(seed=seed).terminated.any()
        shard.qvel[1, 4] = np.nan
        assert shard.go().terminated.tolist() == [False, True, False]


@pytest.mark.parametrize("contacts", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_a_state_that_left_the_numbers_in_the_last_frame_ends_the_episode(
    value: float, contacts: bool, monkeypatch: pytest.MonkeyPatch
):
    shard = Hopper(3, contacts=contacts)
    shard.start()
    real = shard.batch.step

    def step(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        shard.qvel[2, 5] = shard.qpos[2, 0] = value

    monkeypatch.setattr(shard.batch, "step", step)
    rows = shard.go()
    assert rows.terminated.tolist() == [False, False, True]
    assert finite(rows)


def test_derived_numbers_that_are_none_become_finite_where_a_simulation_diverged():
    shard = Hopper(3)
    shard.start()
    shard.place = np.full((3, 5, 3), np.nan)
    shard.place[1, :, 0] = 1e300
    shard.qvel[1, 4] = np.nan
    rows = shard.go()
    assert isinstance(rows.obs, np.ndarray)
    assert np.isfinite(rows.obs[1]).all() and np.abs(rows.obs[1]).max() <= HUGE


@pytest.mark.parametrize("variant", ROBOTS, ids=variant_name)
@pytest.mark.parametrize("value", [np.nan, 1e9])
def test_every_robot_ends_its_episode_with_finite_numbers_when_it_diverges(
    variant: tuple[str, dict[str, Any]], value: float
):
    family = family_of(variant)
    played, rng = Played(family, 3), np.random.default_rng(0)
    assert isinstance(played.shard, MujocoShard)
    tasks = family.sample_tasks(rng, 3, "train")
    for seed in range(2):
        played.reset(ALL, tasks, ALL + seed)
        played.shard.qvel[1] = value
        rows = played.step(ALL, random_actions(rng, family, 3))
        assert rows.terminated.tolist() == [False, True, False]
        assert finite(rows)


def test_mujoco_says_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    shard = Hopper(2, contacts=True)
    shard.start([0, 1])
    shard.qvel[1, 4] = np.nan
    assert shard.go([0, 1]).terminated[1]
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir()), "no log in the working directory"


def test_an_error_inside_mujoco_names_its_slot(monkeypatch: pytest.MonkeyPatch):
    shard = Hopper(3)
    shard.start()

    def fail(*_: Any, **__: Any) -> None:
        raise SimulationError(np.array([2]), "the stack overflowed")

    monkeypatch.setattr(shard.batch, "step", fail)
    with pytest.raises(SlotError, match="the stack overflowed") as caught:
        shard.go()
    assert caught.value.slot == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_contact_forces_are_mujocos_own_for_every_slot_and_every_parameter(threads: int):
    """Also of the slots that were stepped alone, and of starts; the slots have different masses."""
    shard, factors = Hopper(3, threads, contacts=True), (0.5, 1.0, 3.0)
    plain = [(model := mujoco_shard.load_model("hopper.xml"), mujoco.MjData(model)) for _ in factors]
    for slot, factor in enumerate(factors):
        shard.start([slot], factor, seed=slot)
        model, data = plain[slot]
        model.body_mass[:] *= factor
        data.qpos[:], data.qvel[:] = shard.qpos[slot], shard.qvel[slot]
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
    rng, touched = np.random.default_rng(0), 0
    for _ in range(60):
        assert (shard.contact_forces(slice(None)) == [data.cfrc_ext for _, data in plain]).all()
        touched += int((shard.contact_forces(slice(None)) != 0).any(axis=(1, 2)).sum())
        slots = np.flatnonzero(rng.random(3) < 0.7)
        shard.go(slots, torque=0.25)
        for slot in slots:
            model, data = plain[slot]
            data.ctrl[:] = 0.25
            for _ in range(4):
                mujoco.mj_step(model, data)
            mujoco.mj_rnePostConstraint(model, data)
    assert touched > 20


def test_without_contacts_there_are_no_forces_to_ask_for():
    with pytest.raises(AssertionError, match="without contacts"):
        Hopper(1).contact_forces(slice(None))


def test_contacts_do_not_change_the_motion():
    shards = [Hopper(3, contacts=contacts) for contacts in (False, True)]
    for shard in shards:
        shard.start()
        for _ in range(40):
            shard.go()
    assert (shards[0].qpos == shards[1].qpos).all()


def test_fields_are_a_slots_own_and_follow_a_reset():
    shard = Hopper(3)
    shard.start([0, 2], factor=1.0)
    shard.start([1], factor=2.0)
    own = [shard.batch.get_model(slot).body_mass for slot in range(3)]
    assert (
        (own[1] == 2 * shard.model.body_mass).all()
        and (own[0] == own[2]).all()
        and (own[0] == shard.model.body_mass).all()
    )
    shard.start([1], factor=1.0)
    assert (shard.batch.get_model(1).body_mass == shard.model.body_mass).all()
    assert (shard.fields["dof_damping"] == shard.model.dof_damping).all(), (
        "a field that no task has touched is the model's"
    )


def test_starts_are_mujocos_pose_with_the_robots_noise():
    shard = Hopper(300)
    shard.start(np.arange(300))
    for noise in (shard.qpos - mujoco.MjData(shard.model).qpos, shard.qvel):
        assert np.abs(noise).max() <= 0.005
        assert noise.std() == pytest.approx(0.005 / np.sqrt(3), rel=0.05)
    assert (shard.rows.info == 0).all()


def test_a_picture_shows_the_robot_of_the_slot_or_says_what_is_missing():
    shard = Hopper(2)
    shard.start([0, 1])
    for _ in range(15):
        shard.go([1])
    before = shard.batch.state.copy()
    try:
        picture = shard.render(1)
    except RuntimeError as error:
        assert "MUJOCO_GL" in str(error)
    else:
        assert picture.dtype == np.uint8 and picture.ndim == 3
        assert len(np.unique(picture)) > 20
        assert (picture != shard.render(0)).any()
    assert np.array_equal(shard.batch.state, before), "looking changes nothing"
    shard.close()
    shard.close()


def test_an_opengl_that_mujoco_cannot_load_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch):
    """MuJoCo loads it when it is imported, so no episode could be played."""
    monkeypatch.setitem(sys.modules, "mujoco", None)  # so an import fails
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(OptionError, match=r"with MUJOCO_GL=osmesa .*Install EGL or OSMesa.*or unset it"):
        mujoco_shard.mujoco_module()
    monkeypatch.delenv("MUJOCO_GL")
    with pytest.raises(ImportError):
        mujoco_shard.mujoco_module()


def test_a_missing_opengl_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(mujoco, "Renderer", fail)
    shard = Hopper(1)
    shard.start([0])
    with pytest.raises(RuntimeError, match=r"eglQueryString.*MUJOCO_GL=egl"):
        shard.render(0)

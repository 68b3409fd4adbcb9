"""AntGoal against plain MuJoCo and its definition, in all its variants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.locomotion.ant import AntShard
from envs.meta.make_env import make_family
from tests.envs.meta.locomotion.gymnasium_peer import assert_random_returns_are_the_reported_ones
from tests.envs.meta.locomotion.plain_mujoco import PlainRobot, assert_same_as_plain
from tests.envs.meta.played import Played

VARIANTS = ("dense", "sparse", "level", "semicircle", "semicircle_sparse", "circle")
CONTROL_COSTS = {
    "dense": 0.1,
    "sparse": 0.01,
    "level": 0.01,
    "semicircle": 0.1,
    "semicircle_sparse": 0.1,
    "circle": 0.5,
}
RADII = {"sparse": 0.75, "semicircle_sparse": 0.2}


class PlainGoalAnt(PlainRobot):
    """The definition, in scalars."""

    file, frame_skip, normal_speeds = "ant.xml", 5, True

    def __init__(self, variant: str, contacts: bool, seen: set[bool], level_radius: float) -> None:
        super().__init__()
        self.variant, self.contacts, self.seen = variant, contacts, seen
        self.radius = RADII.get(variant, level_radius)
        self.noise = 0.0 if variant.startswith("semicircle") else 0.1

    def position(self) -> list[float]:
        return self.data.body("torso").xpos[:2].tolist()

    def reward(self, torques: list[float], velocity: list[float]) -> float:
        dx, dy = (here - goal for here, goal in zip(self.position(), self.task, strict=True))
        distance = math.sqrt(dx * dx + dy * dy)
        inside = distance <= self.radius
        self.seen.add(inside)
        worth = {
            "dense": -abs(dx) - abs(dy),
            "semicircle": -abs(dx) - abs(dy),
            "sparse": 1.0 - distance if inside else -0.75,
            "level": -distance if inside else -self.radius,
            "semicircle_sparse": 1.0 if inside else 0.0,
            "circle": -distance + 1.0,
        }[self.variant]
        cost = CONTROL_COSTS[self.variant] * sum(torque**2 for torque in torques)
        if self.contacts:
            cost += 0.5e-3 * sum(
                min(max(force, -1.0), 1.0) ** 2 for force in self.data.cfrc_ext.ravel().tolist()
            )
        return worth - cost

    def fallen(self) -> bool:
        return self.variant == "circle" and not 0.2 <= self.data.qpos[2] <= 1.0

    def obs(self) -> np.ndarray:
        forces = np.clip(self.data.cfrc_ext.ravel(), -1, 1) if self.contacts else []
        return np.concatenate([self.data.qpos, self.data.qvel, forces])


@pytest.mark.parametrize("contacts", [False, True], ids=["", "contacts"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_physics_and_rewards_equal_a_plain_mj_step_loop(
    variant: str, threads: int, contacts: bool, monkeypatch: pytest.MonkeyPatch
):
    family = make_family(
        "AntGoal", variant=variant, contacts=contacts, **({"level": 5} if variant == "level" else {})
    )
    # Goals so near that a random ant is inside and outside.
    reach = RADII.get(variant, 0.5)
    monkeypatch.setattr(family, "sample_tasks", lambda rng, n, split: rng.uniform(-reach, reach, (n, 2)))
    seen: set[bool] = set()
    assert_same_as_plain(family, lambda: PlainGoalAnt(variant, contacts, seen, 0.5), threads)
    assert seen == {False, True}


@pytest.mark.parametrize("level, radius", list(enumerate([3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.3])))
def test_the_levels_have_the_published_radii(level: int, radius: float):
    played = Played(make_family("AntGoal", variant="level", level=level), 2)
    played.reset([0, 1], [[radius - 0.15, 0.0], [radius + 0.15, 0.0]], [0, 0])
    rows = played.step([0, 1], np.zeros((2, 8)))
    assert rows.reward[1] == -radius < rows.reward[0]
    assert rows.info[:, 1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "variant, radius",
    [("dense", 0.75), ("sparse", 0.75), ("semicircle", 0.2), ("semicircle_sparse", 0.2), ("circle", 0.4)],
)
def test_success_is_to_be_within_the_radius_now(variant: str, radius: float):
    played = Played(make_family("AntGoal", variant=variant), 2)
    rows = played.reset([0, 1], np.zeros((2, 2)), [0, 0])
    x, y = rows.info[0, 2:].tolist()
    played.reset([0, 1], [[x + radius - 1e-9, y], [x, y - radius - 1e-9]], [0, 0])
    assert rows.info[:, 1].tolist() == [1.0, 0.0]
    assert rows.info[:, 0] == pytest.approx(radius, abs=1e-8)


def uniform_error(values: np.ndarray) -> float:
    """How far the deciles of values in [0, 1] are from those of a uniform distribution."""
    assert values.min() >= 0 and values.max() <= 1
    return float(np.abs(np.quantile(values, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_goals_have_their_distribution(variant: str, split: str):
    family = make_family("AntGoal", variant=variant)
    assert family.spec.split is Split.disjoint
    goals = family.sample_tasks(np.random.default_rng(0), 20_000, split)
    far, angle = np.hypot(goals[:, 0], goals[:, 1]), np.arctan2(goals[:, 1], goals[:, 0])
    if variant in ("dense", "sparse", "level"):
        assert uniform_error((far / 3) ** 2) < 0.015
        assert abs(np.asarray(np.corrcoef(far, angle))[0, 1]) < 0.03
    else:
        assert far == pytest.approx(1.0, abs=1e-12)
    assert (
        uniform_error(angle / math.pi if variant.startswith("semicircle") else (angle / math.pi + 1) / 2)
        < 0.015
    )


def test_only_the_half_circle_starts_still():
    for variant in VARIANTS:
        played = Played(make_family("AntGoal", variant=variant), 2)
        rows = played.reset([0, 1], np.ones((2, 2)), [0, 1])
        assert isinstance(rows.obs, np.ndarray)
        assert (rows.obs[0] == rows.obs[1]).all() == variant.startswith("semicircle")


@pytest.mark.parametrize("options", [{}, {"contacts": True}, {"variant": "circle"}], ids=str)
def test_a_diverged_ant_ends_its_episode_with_finite_numbers(options: dict[str, Any]):
    family = make_family("AntGoal", **options)
    twin, played = Played(family, 3), Played(family, 3)
    for one in (twin, played):
        one.reset(np.arange(3), np.ones((3, 2)), np.arange(3))
    assert isinstance(played.shard, AntShard)
    played.shard.qvel[1, 3] = np.nan
    twin.step(np.arange(3), np.zeros((3, 8)))
    rows = played.step(np.arange(3), np.zeros((3, 8)))
    assert rows.terminated.tolist() == [False, True, False]
    assert isinstance(rows.obs, np.ndarray)
    assert np.isfinite(rows.obs).all() and np.isfinite(rows.reward).all() and np.isfinite(rows.info).all()
    assert [played.bits(slot) == twin.bits(slot) for slot in range(3)] == [True, False, True]


def test_the_returns_of_random_are_the_reported_ones():
    assert_random_returns_are_the_reported_ones(make_family("AntGoal"))
    assert make_family("AntGoal", variant="sparse").spec.reference is None
    assert make_family("AntGoal", max_episode_steps=100).spec.reference is None

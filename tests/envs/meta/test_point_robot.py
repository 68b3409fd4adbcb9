"""PointRobot against its definition and the measured facts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.base import TaskFamily
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of

PUBLISHED: dict[str, dict[str, Any]] = {
    "semi-circle": {},
    "varibad": {"reward": "sparse_distance", "start": "fixed", "max_episode_steps": 100},
    "pearl": {"reward": "dense", "start": "fixed", "max_episode_steps": 20},
}


def worth(kind: str, distance: float, radius: float) -> float:
    """The three rewards, by their definitions."""
    if kind == "dense":
        return -distance
    if distance > radius:
        return 0.0
    return 1.0 if kind == "sparse" else 1.0 - distance


@pytest.mark.parametrize("kind", ["sparse", "sparse_distance", "dense"])
@pytest.mark.parametrize("radius", [0.2, 0.5])
def test_an_episode_is_what_the_definition_says(kind: str, radius: float):
    family = make_family("PointRobot", reward=kind, start="fixed", radius=radius)
    rng = np.random.default_rng(0)
    task = family.sample_tasks(rng, 1, "train")[0]
    played, rewards = Played(family, 1), []
    rows = played.reset([0], [task], [0])
    x = y = 0.0
    for step in range(100):
        assert isinstance(rows.obs, np.ndarray)
        # To the goal, and then about: over its edge in both directions, and beyond the bounds of an action.
        action = family.oracle_action(rows.obs, task[None], rows.info)[0] if step < 20 else 1.5 * random_actions(rng, family)
        played.step([0], action[None])
        x += 0.1 * min(max(float(action[0]), -1.0), 1.0)
        y += 0.1 * min(max(float(action[1]), -1.0), 1.0)
        dx, dy = x - task[0], y - task[1]
        distance = math.sqrt(dx * dx + dy * dy)
        assert rows.obs[0].tolist() == [np.float32(x), np.float32(y)]
        assert rows.reward[0] == worth(kind, distance, radius)
        assert rows.info[0].tolist() == [distance, distance <= radius]
        assert not rows.terminated[0]
        rewards.append(rows.reward[0])
    assert len(set(rewards)) > 1, "the walk must have been inside and outside"


def test_goals_are_uniform_on_the_upper_half_circle():
    family = make_family("PointRobot")
    for split in ("train", "test"):
        goals = family.sample_tasks(np.random.default_rng(0), 20_000, split)
        assert np.allclose((goals**2).sum(axis=1), 1.0)
        assert (goals[:, 1] >= 0).all()
        angles = np.arctan2(goals[:, 1], goals[:, 0]) / math.pi
        assert np.abs(np.quantile(angles, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


def test_random_starts_fill_their_box_and_fixed_ones_are_the_origin():
    for start in ("random", "fixed"):
        played = Played(make_family("PointRobot", start=start), 5000)
        rows = played.reset(np.arange(5000), np.tile([[0.0, 1.0]], (5000, 1)), np.arange(5000))
        assert isinstance(rows.obs, np.ndarray)
        if start == "fixed":
            assert not rows.obs.any()
            continue
        for axis, (low, high) in enumerate([(-1.5, 1.5), (-0.5, 1.5)]):
            along = (rows.obs[:, axis] - low) / (high - low)
            assert along.min() >= 0 and along.max() <= 1
            assert np.abs(np.quantile(along, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.03


def reference_of(family: TaskFamily) -> dict[bool, float | None]:
    reference = family.spec.reference
    assert reference is not None
    return {True: reference.oracle, False: reference.random}


@pytest.mark.parametrize("variant", PUBLISHED)
@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(variant: str, oracle: bool):
    family = make_family("PointRobot", **PUBLISHED[variant])
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(reference_of(family)[oracle], abs=4 * error + 0.05)


def test_the_oracle_meets_the_published_facts():
    for variant, fact in (("semi-circle", 51.8), ("varibad", 93.4)):
        family = make_family("PointRobot", **PUBLISHED[variant])
        returns = returns_of(family, family.sample_tasks(np.random.default_rng(2), 4000, "test"), oracle=True)
        assert returns.mean() == pytest.approx(fact, abs=0.4)


def test_other_settings_have_no_reference():
    assert make_family("PointRobot", radius=0.3).spec.reference is None
    assert make_family("PointRobot", max_episode_steps=59).spec.reference is None


def test_a_picture_shows_the_goal_and_the_point():
    played = Played(make_family("PointRobot", start="fixed"), 2)
    played.reset([0, 1], [[0.0, 1.0], [1.0, 0.0]], [0, 0])
    picture = played.shard.render(0)
    assert picture.dtype == np.uint8 and picture.shape == (200, 200, 3)
    assert picture[100, 100].tolist() == [40, 60, 140]
    assert picture[50, 100].tolist() == [120, 200, 120]
    assert (picture != played.shard.render(1)).any()

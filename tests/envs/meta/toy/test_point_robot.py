"""PointRobot against its definition and the measured facts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.base import TaskFamily
from envs.meta.make_env import make_family
from envs.meta.toy.plane import towards
from envs.meta.toy.point_robot import published_goals
from tests.envs.meta.played import Played, random_actions, returns_of
from utils.options import OptionError

PUBLISHED: dict[str, dict[str, Any]] = {
    "semi-circle": {},
    "varibad": {"reward": "sparse_distance", "start": "fixed", "max_episode_steps": 100},
    "pearl": {"reward": "dense", "start": "fixed", "max_episode_steps": 20},
    "pearl's tests": {"start": "fixed", "max_episode_steps": 20},
    "square": {"goals": "square", "start": "square", "reward": "dense"},
    "circle": {"goals": "circle", "reward": "dense"},
    "down_up": {"goals": "circle", "arcs": "down_up", "reward": "dense"},
    "sides": {"goals": "circle", "arcs": "sides", "reward": "dense"},
    "far": {"goals": "circle", "test_circle_radius": 2.0, "reward": "dense"},
    "fixed wind": {"goals": "circle", "wind": "fixed", "reward": "dense"},
    "wind of the episode": {"goals": "circle", "wind": "episode", "reward": "dense"},
    "wind of the step": {"goals": "circle", "wind": "step", "reward": "dense"},
    "demo": {"start": "fixed", "max_episode_steps": 20, "radius": 0.4},
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
        action = (
            family.oracle_action(rows.obs, task[None], rows.info)[0]
            if step < 20
            else 1.5 * random_actions(rng, family)
        )
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


def deciles_differ(draws: np.ndarray) -> float:
    """How far the deciles of draws in [0, 1] are from those of uniform ones."""
    assert draws.min() >= 0 and draws.max() <= 1
    return float(np.abs(np.quantile(draws, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max())


# Where goals are by the definition, in turns; each of several arcs equally often.
ARCS: list[tuple[dict[str, Any], dict[str, list[tuple[float, float]]]]] = [
    ({}, {"train": [(0.0, 0.5)], "test": [(0.0, 0.5)]}),
    ({"goals": "circle"}, {"train": [(0.0, 1.0)], "test": [(0.0, 1.0)]}),
    ({"goals": "circle", "arcs": "down_up"}, {"train": [(0.5, 1.0)], "test": [(0.0, 0.5)]}),
    (
        {"goals": "circle", "arcs": "sides"},
        {"train": [(0.875, 1.125), (0.375, 0.625)], "test": [(0.125, 0.375), (0.625, 0.875)]},
    ),
    (
        {"goals": "circle", "circle_radius": 0.5, "test_circle_radius": 2.0},
        {"train": [(0.0, 1.0)], "test": [(0.0, 1.0)]},
    ),
    ({"circle_radius": 1.5}, {"train": [(0.0, 0.5)], "test": [(0.0, 0.5)]}),
]


@pytest.mark.parametrize("options, arcs", ARCS, ids=str)
def test_goals_are_uniform_on_their_arcs(options: dict[str, Any], arcs: dict[str, list[tuple[float, float]]]):
    family = make_family("PointRobot", **options)
    for split in ("train", "test"):
        goals = family.sample_tasks(np.random.default_rng(0), 20_000, split)
        radius = (
            options.get("circle_radius", 1.0)
            if split == "train"
            else options.get("test_circle_radius", options.get("circle_radius", 1.0))
        )
        assert np.allclose((goals**2).sum(axis=1), radius**2)
        turns, seen = np.arctan2(goals[:, 1], goals[:, 0]) / (2 * math.pi), 0
        for low, high in arcs[split]:
            along = (turns - low) % 1.0 / (high - low)
            along = along[along <= 1.0]
            assert len(along) == pytest.approx(20_000 / len(arcs[split]), abs=300)
            assert deciles_differ(along) < 0.015
            seen += len(along)
        assert seen == 20_000


def test_goals_of_the_square_are_uniform_in_it():
    goals = make_family("PointRobot", goals="square").sample_tasks(np.random.default_rng(0), 20_000, "train")
    assert max(deciles_differ((goals[:, axis] + 1) / 2) for axis in (0, 1)) < 0.015
    assert abs(np.asarray(np.corrcoef(goals.T))[0, 1]) < 0.03


def test_arcs_are_refused_where_there_is_no_circle():
    with pytest.raises(OptionError, match="goals=circle"):
        make_family("PointRobot", arcs="sides")


def test_the_published_tasks_are_evenly_spaced():
    goals = published_goals(5)
    diagonal = math.sqrt(0.5)
    assert np.allclose(goals, [(1, 0), (diagonal, diagonal), (0, 1), (-diagonal, diagonal), (-1, 0)])


BOXES = {"random": [(-1.5, 1.5), (-0.5, 1.5)], "square": [(-1.0, 1.0), (-1.0, 1.0)]}


def test_random_starts_fill_their_box_and_fixed_ones_are_the_origin():
    for start in ("random", "square", "fixed"):
        played = Played(make_family("PointRobot", start=start), 5000)
        rows = played.reset(np.arange(5000), np.tile([[0.0, 1.0]], (5000, 1)), np.arange(5000))
        assert isinstance(rows.obs, np.ndarray)
        if start == "fixed":
            assert not rows.obs.any()
            continue
        for axis, (low, high) in enumerate(BOXES[start]):
            assert deciles_differ((rows.obs[:, axis] - low) / (high - low)) < 0.03


def blown(wind: str, n: int, steps: int) -> np.ndarray:
    """[steps, n, 2] how far the wind moved the points in each step of an episode of random actions."""
    family = make_family("PointRobot", wind=wind, start="random")
    rng, played, moved = np.random.default_rng(0), Played(family, n), []
    rows = played.reset(np.arange(n), family.sample_tasks(rng, n, "train"), rng.integers(2**63, size=n))
    for _ in range(steps):
        assert isinstance(rows.obs, np.ndarray)
        before, actions = rows.obs.astype(np.float64), random_actions(rng, family, n).astype(np.float64)
        played.step(np.arange(n), actions)
        moved.append(rows.obs - before - 0.1 * actions)
    return np.array(moved)


def test_no_wind_and_a_fixed_one_are_the_same_in_every_step():
    assert np.allclose(blown("none", 10, 20), 0.0, atol=1e-6)
    assert np.allclose(blown("fixed", 10, 20), (-0.04, 0.03), atol=1e-6)


def test_the_wind_of_an_episode_is_drawn_once_and_in_every_direction():
    moved = blown("episode", 5000, 5)
    assert np.allclose(moved, moved[0], atol=1e-6)
    assert np.allclose(np.linalg.norm(moved, axis=2), 0.05, atol=1e-6)
    assert deciles_differ(np.arctan2(moved[0, :, 1], moved[0, :, 0]) / (2 * math.pi) % 1.0) < 0.03


def test_the_wind_of_a_step_is_drawn_anew_and_in_every_direction():
    moved = blown("step", 200, 100)
    assert np.allclose(np.linalg.norm(moved, axis=2), 0.05, atol=1e-6)
    turns = np.arctan2(moved[:, :, 1], moved[:, :, 0]) / (2 * math.pi) % 1.0
    assert deciles_differ(turns) < 0.015
    after = (turns[1:] - turns[:-1]) % 1.0
    across = (turns[:, 1:] - turns[:, :-1]) % 1.0
    assert max(deciles_differ(after), deciles_differ(across)) < 0.015, (
        "the next step and the next slot know nothing of this one"
    )


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


def sweep(variant: str, episodes: int) -> list[float]:
    """The mean return of each episode of a policy that does not know the goal.

    It goes to the nearer end of the half circle, along it as fast as an action allows until the reward comes,
    and then stays; in later episodes it goes straight to where the goal must be.
    """
    family = make_family("PointRobot", **PUBLISHED[variant])
    tasks, slots = family.sample_tasks(np.random.default_rng(1), 2000, "test"), np.arange(2000)
    played, goal, means = Played(family, 2000), np.full((2000, 2), np.nan), []
    for episode in range(episodes):
        rows = played.reset(slots, tasks, np.random.default_rng(episode).integers(2**63, size=2000))
        assert isinstance(rows.obs, np.ndarray)
        side, total = np.where(rows.obs[:, 0] >= 0, 1.0, -1.0), np.zeros(2000)
        angle, swept = np.where(side > 0, 0.0, math.pi), np.zeros(2000, bool)
        for _ in range(family.config.max_episode_steps):
            swept |= np.abs(rows.obs - circle(angle)).max(axis=1) < 1e-4
            ahead = angle.copy()
            for arc in np.linspace(0.1, 0.142, 15):
                reached = np.abs(circle(angle + side * arc) - circle(angle)).max(axis=1) <= 0.1
                ahead = np.where(reached, angle + side * arc, ahead)
            angle = np.clip(np.where(swept, ahead, angle), 0.0, math.pi)
            rows = played.step(slots, towards(np.where(np.isnan(goal), circle(angle), goal), rows.obs))
            assert isinstance(rows.obs, np.ndarray)
            total += rows.reward
            new = np.isnan(goal[:, 0]) & (rows.reward > 0)
            goal[new] = deduced(
                variant, rows.obs[new].astype(np.float64), rows.reward[new], side[new], swept[new]
            )
        means.append(float(total.mean()))
    return means


def circle(angle: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def deduced(
    variant: str, here: np.ndarray, reward: np.ndarray, side: np.ndarray, swept: np.ndarray
) -> np.ndarray:
    """Where the goal must be, after it has been found.

    The reward gives its distance; else it is somewhat further along the circle, or here, where the point came
    by chance.
    """
    far, angle = np.sqrt((here**2).sum(axis=1)), np.arctan2(here[:, 1], here[:, 0])
    if variant == "varibad":
        cosine = (1 + far**2 - (1 - reward) ** 2) / (2 * far)
        return circle(angle + side * np.arccos(np.clip(cosine, -1.0, 1.0)))
    return np.where(swept[:, None], circle(angle + 0.15 * side), here)


def test_a_sweep_meets_the_measured_facts():
    assert sweep("semi-circle", 2) == [pytest.approx(40.5, abs=1.0), pytest.approx(51.6, abs=0.3)]
    assert sweep("varibad", 3) == [
        pytest.approx(76.8, abs=1.0),
        pytest.approx(93.4, abs=0.1),
        pytest.approx(93.4, abs=0.1),
    ]


def test_other_settings_have_no_reference():
    assert make_family("PointRobot", radius=0.3).spec.reference is None
    assert make_family("PointRobot", max_episode_steps=59).spec.reference is None
    assert make_family("PointRobot", wind="fixed").spec.reference is None


def test_a_picture_shows_the_goal_and_the_point():
    played = Played(make_family("PointRobot", start="fixed"), 2)
    played.reset([0, 1], [[0.0, 1.0], [1.0, 0.0]], [0, 0])
    picture = played.shard.render(0)
    assert picture.dtype == np.uint8 and picture.shape == (200, 200, 3)
    assert picture[100, 100].tolist() == [40, 60, 140]
    assert picture[50, 100].tolist() == [120, 200, 120]
    assert (picture != played.shard.render(1)).any()

"""GridNavi against its definition and the measured facts."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family, make_parallel_env
from tests.envs.meta.played import Played, random_actions, returns_of
from utils.options import OptionError

PUBLISHED: list[dict[str, Any]] = [
    {},
    {"variant": "show"},
    {"variant": "dense"},
    {"variant": "hall"},
    {"size": 7},
    {"variant": "hall", "size": 60, "max_episode_steps": 200},
]


def one_step(variant: str, size: int, doors: int, x: int, y: int, action: int) -> tuple[int, int]:
    """The cell after an action, by the definition."""
    dx, dy = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))[action]
    if variant != "hall":
        return min(max(x + dx, 0), size - 1), min(max(y + dy, 0), size - 1)
    if y == 1:
        return x, 0 if action == 3 else 1
    if action == 1:
        return x, 1 if x > 0 and x % doors == 0 else 0
    return min(max(x + dx, 0), size - 1), 0


@pytest.mark.parametrize("variant", ["plain", "show", "dense", "hall"])
@pytest.mark.parametrize("size, doors", [(5, 1), (7, 2)])
def test_an_episode_is_what_the_definition_says(variant: str, size: int, doors: int):
    family = make_family(
        "GridNavi", variant=variant, size=size, **({"door_every": doors} if variant == "hall" else {})
    )
    rng, rewards, visited = np.random.default_rng(0), set[float](), set[tuple[int, int]]()
    for task in family.sample_tasks(rng, 12, "train"):
        gx, gy = task.tolist()
        played, x, y = Played(family, 1), 0, 0
        rows = played.reset([0], [task], [0])
        assert isinstance(rows.obs, np.ndarray)
        assert rows.obs[0].tolist() == ([gx, gy] if variant == "show" else [0, 0])
        assert rows.info[0].tolist() == [gx + gy, 0]
        for step in range(60):
            wise = 20 <= step < 40
            action = (
                family.oracle_action(rows.obs, task[None], rows.info)
                if wise
                else random_actions(rng, family, 1)
            )[0]
            played.step([0], action[None])
            x, y = one_step(variant, size, doors, x, y, int(action))
            distance = abs(x - gx) + abs(y - gy)
            away = -distance / size if variant == "dense" else -0.1
            assert rows.obs[0].tolist() == [x, y]
            assert rows.reward[0] == (1.0 if distance == 0 else away)
            assert rows.info[0].tolist() == [distance, distance == 0]
            assert not rows.terminated[0]
            rewards.add(float(rows.reward[0]))
            visited.add((x, y))
    assert 1.0 in rewards and len(rewards) > 1 and len(visited) > size


def test_goals_are_the_21_cells_away_from_the_start_each_equally_often():
    family = make_family("GridNavi")
    cells = {(x, y) for x in range(5) for y in range(5)} - {(0, 0), (0, 1), (1, 0), (1, 1)}
    for split in ("train", "test"):
        drawn = Counter(
            (int(x), int(y)) for x, y in family.sample_tasks(np.random.default_rng(0), 2100, split)
        )
        assert set(drawn) == cells and set(drawn.values()) == {100}


def test_goals_of_a_hall_are_behind_its_doors():
    goals = make_family("GridNavi", variant="hall", size=8, door_every=3).sample_tasks(
        np.random.default_rng(0), 50, "test"
    )
    assert {tuple(goal) for goal in goals.tolist()} == {(3.0, 1.0), (6.0, 1.0)}
    with pytest.raises(OptionError, match="has no door"):
        make_family("GridNavi", variant="hall", door_every=5)


@pytest.mark.parametrize("options", PUBLISHED, ids=str)
@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(options: dict[str, Any], oracle: bool):
    family = make_family("GridNavi", **options)
    reference = family.spec.reference
    assert reference is not None
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 1000, "test"), oracle=oracle)
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.05
    )
    assert make_family("GridNavi", size=6).spec.reference is None


def trial_returns(search: bool) -> list[list[float]]:
    """[21][4] the returns of a trial's episodes on each goal, of the oracle or of a search.

    The search walks to the nearest cell where the goal may be (of equally near ones the leftmost, then the
    highest), and goes straight to the goal after it was found.
    """
    family = make_family("GridNavi")
    tasks = np.array([(x, y) for x in range(5) for y in range(5) if max(x, y) > 1], np.float64)
    unseen, totals = [{(int(x), int(y)) for x, y in tasks} for _ in tasks], [[0.0] * 4 for _ in tasks]
    felt: list[tuple[int, int] | None] = [None] * len(tasks)
    with make_parallel_env("GridNavi", None, 1, seed=0, num_envs=len(tasks)) as envs:
        rows = envs.reset(tasks)
        for row in range(1, 4 * 16):
            assert isinstance(rows.obs, np.ndarray)
            cells = [(int(x), int(y)) for x, y in rows.obs[:, :2]]
            targets = tasks
            if search:
                near = [
                    sorted(unseen[i], key=lambda c: (abs(c[0] - x) + abs(c[1] - y), c[0], -c[1]))
                    for i, (x, y) in enumerate(cells)
                ]
                targets = np.array([felt[i] or near[i][0] for i in range(len(tasks))], np.float64)
            rows = envs.step(family.oracle_action(rows.obs[:, :2], targets, rows.info))
            assert isinstance(rows.obs, np.ndarray)
            for i, (x, y) in enumerate(rows.obs[:, :2].astype(int).tolist()):
                unseen[i].discard((x, y))
                if rows.reward[i] > 0:
                    felt[i] = (x, y)
                totals[i][row // 16] += float(rows.reward[i])
        assert rows.trial_end.all()
    return totals


def test_the_oracle_meets_the_published_facts_in_a_trial():
    mean = np.mean(trial_returns(search=False), axis=0)
    assert mean == pytest.approx([11.07] * 4, abs=0.005)
    assert mean.sum() == pytest.approx(44.3, abs=0.05)


def test_a_search_meets_the_measured_fact_in_a_trial():
    mean = np.mean(trial_returns(search=True), axis=0)
    assert mean.sum() >= 37.2
    # What 15 steps have not seen lies along one shortest way, so the second episode loses nothing.
    assert mean == pytest.approx([4.0, 11.07, 11.07, 11.07], abs=0.005)


def test_a_picture_shows_the_goal_the_walker_and_the_walls():
    played = Played(make_family("GridNavi", variant="hall"), 1)
    played.reset([0], [[2.0, 1.0]], [0])
    picture = played.shard.render(0)
    assert picture.shape == (80, 200, 3)
    assert picture[60, 20].tolist() == [40, 60, 140]
    assert picture[20, 100].tolist() == [120, 200, 120]
    assert picture[20, 20].tolist() == [90, 90, 100]
    assert picture[20, 60].tolist() == picture[60, 60].tolist() == [245, 245, 245]

"""MetaFrozenLake against its definition."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import pytest

from envs.meta.grid.meta_frozen_lake import UNREACHABLE, steps_to_goal
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of

MOVES = {0: (0, 0), 1: (1, 0), 2: (-1, 0), 3: (0, 1), 4: (0, -1)}

SETTINGS: list[dict[str, Any]] = [
    {},
    {"holes": "recover"},
    {"size": 8},
    {"size": 4, "frozen": 0.7, "holes": "recover"},
]


def ways(task: list[float], size: int) -> dict[tuple[int, int], int]:
    """The steps to the goal from every cell that has a way there, by a search that grows from the goal."""
    goal = (size - 1, size - 1)
    found, queue = {goal: 0}, deque([goal])
    while queue:
        x, y = queue.popleft()
        for dx, dy in MOVES.values():
            cell = (x + dx, y + dy)
            inside = 0 <= cell[0] < size and 0 <= cell[1] < size
            if inside and cell not in found and task[cell[0] * size + cell[1]] == 0.0:
                found[cell] = found[x, y] + 1
                queue.append(cell)
    return found


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("play", ["oracle", "random"])
def test_episodes_are_what_the_definition_says(settings: dict[str, Any], play: str):
    family, rng = make_family("MetaFrozenLake", **settings), np.random.default_rng(0)
    size, recover = settings.get("size", 5), settings.get("holes") == "recover"
    assert family.config.max_episode_steps == size * size
    rewards = set()
    for given in family.sample_tasks(rng, 40, "train"):
        played, task = Played(family, 1), given.tolist()
        rows = played.reset([0], given[None], [0])
        assert rows.obs[0].tolist() == [0.0, 0.0]  # pyright: ignore[reportArgumentType]
        x = y = time = 0
        while not rows.terminated[0] and time < size * size:
            action = int(
                (
                    family.oracle_action(rows.obs, given[None], rows.info)
                    if play == "oracle"
                    else random_actions(rng, family, 1)
                )[0]
            )
            played.step([0], [action])
            time += 1
            to_x, to_y = (
                max(0, min(size - 1, x + MOVES[action][0])),
                max(0, min(size - 1, y + MOVES[action][1])),
            )
            hole, goal = task[to_x * size + to_y] == 1.0, (to_x, to_y) == (size - 1, size - 1)
            x, y = (x, y) if hole and recover else (to_x, to_y)
            assert isinstance(rows.obs, np.ndarray)
            assert rows.obs[0].tolist() == [np.float32(x / size), np.float32(y / size)]
            assert rows.reward[0] == (1.0 if goal else -0.1 if hole and recover else 0.0)
            assert rows.terminated[0] == (goal or (hole and not recover))
            assert rows.info[0].tolist() == [goal]
            rewards.add(float(rows.reward[0]))
        if play == "oracle":
            assert rows.reward[0] == 1.0 and time == ways(task, size)[0, 0], "no way is shorter"
    assert rewards >= ({0.0, 1.0} if play == "oracle" else {0.0, -0.1} if recover else {0.0})


@pytest.mark.parametrize("size", [3, 5, 9])
def test_steps_to_the_goal_are_those_of_a_search(size: int):
    rng = np.random.default_rng(0)
    tasks = (rng.random((60, size * size)) < 0.35).astype(np.float64)
    tasks[:, [0, -1]] = 0.0
    for task, steps in zip(tasks, steps_to_goal(tasks, size), strict=True):
        found = ways(task.tolist(), size)
        assert steps.tolist() == [found.get((x, y), UNREACHABLE) for x in range(size) for y in range(size)]


@pytest.mark.parametrize("split", ["train", "test"])
def test_lakes_are_those_of_their_chances_that_have_a_way(split: str):
    # Of all 2^7 lakes of 3 x 3: drawn as often as ice and holes make them, among the ones with a way whose
    # coin fell on this side.
    family = make_family("MetaFrozenLake", size=3)
    drawn, counts = np.unique(
        family.sample_tasks(np.random.default_rng(0), 30_000, split), axis=0, return_counts=True
    )
    weights = []
    for lake in drawn:
        assert lake[0] == lake[-1] == 0.0 and (0, 0) in ways(lake.tolist(), 3)
        weights.append(0.2 ** lake.sum() * 0.8 ** (7 - lake.sum()))
    shares = np.array(weights) / np.sum(weights)
    assert np.abs(counts / 30_000 - shares).max() < 4.5 * np.sqrt(shares.max() / 30_000)
    both = [
        {lake.tobytes() for lake in family.sample_tasks(np.random.default_rng(1), 30_000, side)}
        for side in ("train", "test")
    ]
    solvable = sum((0, 0) in ways([0.0, *map(float, f"{number:07b}"), 0.0], 3) for number in range(128))
    assert not both[0] & both[1] and len(both[0] | both[1]) == solvable
    assert {lake.tobytes() for lake in drawn} <= both[split == "test"]


@pytest.mark.parametrize("holes", ["end", "recover"])
@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(holes: str, oracle: bool):
    family = make_family("MetaFrozenLake", holes=holes)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.001
    )


def test_other_settings_have_no_reference():
    for settings in ({"size": 4}, {"frozen": 0.9}, {"max_episode_steps": 10}):
        assert make_family("MetaFrozenLake", **settings).spec.reference is None

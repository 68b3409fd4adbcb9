"""DarkKeyDoor against its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of

MOVES = {0: (0, -1), 1: (-1, 0), 2: (0, 1), 3: (1, 0), 4: (0, 0)}

SETTINGS: list[dict[str, Any]] = [
    {},
    {"start": "corner"},
    {"shuffle_actions": True},
    {"size": 4, "shuffle_actions": True},
]


def check_episode(
    family: Any, task: list[int], size: int, play: str, rng: np.random.Generator
) -> tuple[float, int]:
    """Play an episode of at most 50 steps beside a scalar simulator of it: its return and its length."""
    played, given = Played(family, 1), np.array([task], np.float64)
    rows = played.reset([0], given, [0])
    (x, y, key_x, key_y, door_x, door_y), order = task[:6], task[6:] or [0, 1, 2, 3, 4]
    has_key, total = False, 0.0
    assert isinstance(rows.obs, np.ndarray)
    assert rows.obs[0].tolist() == [np.float32(x / size), np.float32(y / size), 0.0, 0.0]
    for time in range(1, 51):
        action = int(
            (
                family.oracle_action(rows.obs, given, rows.info)
                if play == "oracle"
                else random_actions(rng, family, 1)
            )[0]
        )
        played.step([0], [action])
        right, up = MOVES[order[action]]
        x, y = max(0, min(size - 1, x + right)), max(0, min(size - 1, y + up))
        opened = has_key and (x, y) == (door_x, door_y)
        found = not has_key and (x, y) == (key_x, key_y)
        has_key = has_key or found
        wanted = [np.float32(x / size), np.float32(y / size), float(has_key), np.float32(time / 50)]
        assert rows.obs[0].tolist() == wanted  # pyright: ignore[reportArgumentType]
        assert (rows.reward[0], rows.terminated[0], rows.info[0, 0]) == (
            float(found or opened),
            opened,
            float(opened),
        )
        total += rows.reward[0]
        if opened:
            return total, time
    return total, 50


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("play", ["oracle", "random"])
def test_episodes_are_what_the_definition_says(settings: dict[str, Any], play: str):
    family, rng = make_family("DarkKeyDoor", **settings), np.random.default_rng(0)
    returns = []
    for task in family.sample_tasks(rng, 40, "train"):
        total, length = check_episode(family, task.astype(int).tolist(), settings.get("size", 9), play, rng)
        returns.append(total)
        if play == "oracle":
            x, y, key_x, key_y, door_x, door_y = task[:6].tolist()
            to_key, to_door = abs(x - key_x) + abs(y - key_y), abs(key_x - door_x) + abs(key_y - door_y)
            assert (total, length) == (2.0, max(to_key, 1) + max(to_door, 1)), "no way is shorter"
    assert set(returns) == {2.0} if play == "oracle" else {0.0, 1.0} <= set(returns)


@pytest.mark.parametrize("task", [[2, 2, 2, 2, 2, 2], [1, 1, 1, 1, 5, 0], [0, 0, 3, 3, 3, 3]], ids=str)
def test_cells_that_coincide_take_a_step_each(task: list[int]):
    family = make_family("DarkKeyDoor")
    total, length = check_episode(family, task, 9, "oracle", np.random.default_rng(0))
    ways = (abs(task[0] - task[2]) + abs(task[1] - task[3]), abs(task[2] - task[4]) + abs(task[3] - task[5]))
    assert (total, length) == (2.0, sum(max(way, 1) for way in ways))


def test_the_next_episode_starts_where_the_task_does_without_the_key():
    family = make_family("DarkKeyDoor")
    played, task = Played(family, 1), np.array([[4.0, 4.0, 4.0, 5.0, 8.0, 8.0]])
    played.reset([0], task, [0])
    assert played.step([0], [2]).obs[0, 2] == 1.0  # pyright: ignore[reportArgumentType, reportCallIssue]
    rows = played.reset([0], task, [1])
    assert isinstance(rows.obs, np.ndarray)
    assert rows.obs[0].tolist() == [np.float32(4 / 9), np.float32(4 / 9), 0.0, 0.0]


@pytest.mark.parametrize("split", ["train", "test"])
def test_cells_are_uniform_and_independent_in_both_splits(split: str):
    count = 20_000
    tasks = make_family("DarkKeyDoor").sample_tasks(np.random.default_rng(0), count, split)
    for column in tasks.T:
        values, counts = np.unique(column, return_counts=True)
        assert values.tolist() == list(range(9))
        assert np.abs(counts / count - 1 / 9).max() < 0.011
    assert np.abs(np.corrcoef(tasks.T) - np.eye(6)).max() < 0.035


def test_what_actions_do_is_a_uniform_permutation():
    count = 12_000
    tasks = make_family("DarkKeyDoor", shuffle_actions=True).sample_tasks(
        np.random.default_rng(0), count, "train"
    )
    orders, counts = np.unique(tasks[:, 6:], axis=0, return_counts=True)
    assert len(orders) == 120
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    assert np.abs(counts - count / 120).max() < 4.5 * math.sqrt(count / 120)
    corner = make_family("DarkKeyDoor", start="corner").sample_tasks(np.random.default_rng(0), 50, "train")
    assert (corner[:, :2] == 0).all() and (corner[:, 2:] != 0).any()


@pytest.mark.parametrize("start", ["random", "corner"])
@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(start: str, oracle: bool):
    family = make_family("DarkKeyDoor", start=start)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.001
    )


def test_other_settings_have_no_reference():
    assert make_family("DarkKeyDoor", size=5).spec.reference is None
    assert make_family("DarkKeyDoor", max_episode_steps=20).spec.reference is None

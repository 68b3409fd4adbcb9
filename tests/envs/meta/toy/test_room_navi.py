"""RoomNavi against its definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of

Cell = tuple[int, int]

ROOMS = {(x, y) for x in range(-7, 8) for y in (-1, 0, 1) if y == 0 or abs(x) <= 1 or abs(x) >= 5}


def stepped(cell: Cell, action: int) -> Cell:
    dx, dy = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))[action]
    there = (cell[0] + dx, cell[1] + dy)
    return there if there in ROOMS else cell


def steps_between(start: Cell, goal: Cell) -> int:
    """The fewest steps, by flooding the rooms."""
    reached, steps = {start}, 0
    while goal not in reached:
        reached |= {stepped(cell, action) for cell in reached for action in range(5)}
        steps += 1
    return steps


def goals_of(task: np.ndarray) -> list[Cell]:
    numbers = [int(one) for one in task]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.mark.parametrize("wisdom", [0.0, 0.5, 1.0])
def test_an_episode_is_what_the_definition_says(wisdom: float):
    family = make_family("RoomNavi")
    rng, rewards = np.random.default_rng(0), Counter[float]()
    for task in family.sample_tasks(rng, 30, "train"):
        goals, cell, found = goals_of(task), (0, 0), 0
        played = Played(family, 1)
        rows = played.reset([0], [task], [0])
        assert isinstance(rows.obs, np.ndarray)
        assert rows.obs[0].tolist() == [0, 0] and rows.info[0].tolist() == [0, 0]
        for _ in range(80):
            wise = rng.random() < wisdom
            action = (
                family.oracle_action(rows.obs, task[None], rows.info)
                if wise
                else random_actions(rng, family, 1)
            )[0]
            played.step([0], action[None])
            cell, reward = stepped(cell, int(action)), -0.1
            if cell in goals and goals.index(cell) <= found:
                reward = (1.0, 10.0, 100.0)[goals.index(cell)]
                found = max(found, goals.index(cell) + 1)
            assert rows.obs[0].tolist() == list(cell)
            assert rows.reward[0] == reward
            assert rows.info[0].tolist() == [found, found == 3]
            assert not rows.terminated[0]
            rewards[reward] += 1
    assert set(rewards) >= ({-0.1, 1.0, 10.0, 100.0} if wisdom else {-0.1, 1.0})


def test_a_later_goal_is_worth_nothing_before_the_earlier_ones():
    family = make_family("RoomNavi")
    played = Played(family, 1)
    rows = played.reset([0], [[1, 1, 5, 1, 1, -1]], [0])
    for action, reward in ((2, -0.1), (3, -0.1), (1, -0.1), (1, 1.0), (0, 1.0), (3, -0.1), (3, -0.1)):
        played.step([0], [action])
        assert rows.reward[0] == reward
    assert rows.info[0].tolist() == [1, 0]


def test_there_are_48_tasks_each_equally_often():
    family = make_family("RoomNavi")
    for split in ("train", "test"):
        drawn = Counter(
            tuple(goals_of(task)) for task in family.sample_tasks(np.random.default_rng(0), 4800, split)
        )
        assert len(drawn) == 48 and set(drawn.values()) == {100}
        for first, second, third in drawn:
            assert {abs(one) for one in (*first, *third)} == {1} and third != first
            assert second[0] * first[0] > 0 and abs(second[0]) in (5, 7) and abs(second[1]) == 1


def test_the_oracle_finds_every_goal_in_the_fewest_steps_and_stays_at_the_last():
    family = make_family("RoomNavi")
    tasks = family.sample_tasks(np.random.default_rng(0), 48, "test")
    goals = [goals_of(task) for task in tasks]
    fewest = np.array(
        [sum(steps_between(*leg) for leg in zip([(0, 0), *own[:2]], own, strict=True)) for own in goals]
    )
    slots, played = np.arange(48), Played(family, 48)
    rows = played.reset(slots, tasks, slots)
    for step in range(1, 51):
        rows = played.step(slots, family.oracle_action(rows.obs, tasks, rows.info))
        assert (rows.info[:, 1] == (step >= fewest)).all()
        assert ((rows.reward == 100.0) == (step >= fewest)).all()
    # The way back may lead over the first goal once more, which is worth 1 and not -0.1.
    least = 1.0 + 10.0 + 100.0 * (51 - fewest) - 0.1 * (fewest - 3)
    gained = returns_of(family, tasks, oracle=True) - least
    assert (np.isclose(gained, 0.0) | np.isclose(gained, 1.1)).all()


def searched(goals: list[Cell]) -> list[int]:
    """The actions of a walker that is told nothing: to the nearest corner where the next goal may be, and to
    stay at the third goal.
    """
    cell, found, seen, actions = (0, 0), 0, set[Cell](), list[int]()
    for _ in range(50):
        side = 0 if found != 1 else int(math.copysign(6, goals[0][0]))
        corners = [(side + x, y) for x in (-1, 1) for y in (-1, 1)]
        # The third goal is not where the first was.
        left = [one for one in corners if one not in seen and not (found == 2 and one == goals[0])]
        target = goals[2] if found == 3 else min(left, key=lambda one: steps_between(cell, one))
        ways = [steps_between(stepped(cell, action), target) for action in range(5)]
        actions.append(int(np.argmin(ways)))
        cell = stepped(cell, actions[-1])
        seen.add(cell)
        if found < 3 and cell == goals[found]:
            found, seen = found + 1, set()
    return actions


def test_a_search_that_is_told_nothing_has_four_fifths_of_the_oracle():
    family = make_family("RoomNavi")
    tasks = family.sample_tasks(np.random.default_rng(0), 48, "test")
    actions, played = np.array([searched(goals_of(task)) for task in tasks]), Played(family, 48)
    slots, total = np.arange(48), np.zeros(48)
    played.reset(slots, tasks, slots)
    for step in range(50):
        total += played.step(slots, actions[:, step]).reward
    assert total.mean() == pytest.approx(2809, abs=0.1)


@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(oracle: bool):
    family = make_family("RoomNavi")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.05
    )
    assert make_family("RoomNavi", max_episode_steps=49).spec.reference is None


def test_a_picture_tells_goals_that_were_found():
    family = make_family("RoomNavi")
    played = Played(family, 1)
    played.reset([0], [[1, 1, 5, 1, -1, 1]], [0])
    before = played.shard.render(0)
    for action in (2, 1, 3):
        played.step([0], [action])
    after = played.shard.render(0)
    assert before.shape == (39, 195, 3)
    assert before[6, 8 * 13 + 6].tolist() == [120, 200, 120]
    assert after[6, 8 * 13 + 6].tolist() == [230, 190, 80]
    assert after[19, 8 * 13 + 6].tolist() == [40, 60, 140]
    assert after[6, 6 * 13 + 6].tolist() == [120, 200, 120]
    assert after[6, 4 * 13 + 6].tolist() == [90, 90, 100]

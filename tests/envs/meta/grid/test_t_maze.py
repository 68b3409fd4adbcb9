"""The T-mazes against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of

WAYS = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}
BEHIND = {"TMazePassive": 0, "TMazeActive": 1}


class PlainMaze:
    """One episode of a T-maze, cell by cell."""

    def __init__(self, length: int, behind: int, penalty: str, cue: int) -> None:
        self.length, self.behind, self.penalty, self.cue = length, behind, penalty, cue
        self.junction = behind + length
        self.free = {(x, 0) for x in range(self.junction + 1)} | {(self.junction, 1), (self.junction, -1)}
        self.place, self.time, self.fetched = (behind, 0), 0, False

    def observe(self) -> list[int]:
        x, y = self.place
        if x == self.junction:
            return [1, y]
        if x > 0:
            return [0, 0]
        shown, self.fetched = 0 if self.fetched else self.cue, True
        return [0, shown]

    def step(self, action: int) -> tuple[float, bool]:
        self.time += 1
        there = (self.place[0] + WAYS[action][0], self.place[1] + WAYS[action][1])
        if there in self.free:
            self.place = there
        if self.time == self.length + 2 * self.behind + 1:
            return (1.0 if self.place[1] == self.cue else 0.0), True
        bad = {
            "lagging": self.place[0] < self.time - self.behind,
            "wrong_action": action != 0 and self.time > self.behind,
            "none": False,
        }
        return (-1.0 / self.length if bad[self.penalty] else 0.0), False


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("penalty", ["lagging", "wrong_action", "none"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_an_episode_is_what_the_definition_says(name: str, penalty: str, length: int):
    family = make_family(name, length=length, penalty=penalty)
    rng = np.random.default_rng(length)
    played, ends = Played(family, 1), set()
    for episode in range(60):
        tasks = family.sample_tasks(rng, 1, "train")
        plain = PlainMaze(length, BEHIND[name], penalty, int(tasks[0, 0]))
        rows = played.reset([0], tasks, [episode])
        over, steps, reward = False, 0, 0.0
        random = rng.random() * (episode % 2)  # half of the episodes are the oracle's
        assert isinstance(rows.obs, np.ndarray)
        while not over:
            assert rows.obs[0].tolist() == plain.observe()
            assert rows.info[0].tolist()[:3] == [steps, *plain.place]
            aimed = rng.random() >= random
            action = (
                family.oracle_action(rows.obs, tasks, rows.info) if aimed else random_actions(rng, family, 1)
            )[0]
            played.step([0], [action])
            reward, over = plain.step(int(action))
            steps += 1
            assert (rows.reward[0], rows.terminated[0]) == (reward, over)
            assert rows.info[0, 3] == (over and reward == 1.0)
        assert rows.obs[0].tolist() == plain.observe()
        assert steps == family.config.max_episode_steps == length + 1 + 2 * BEHIND[name]
        ends.add(reward)
    assert ends == {0.0, 1.0}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("penalty", ["lagging", "wrong_action"])
@pytest.mark.parametrize("length", [20, 500])
def test_the_optimal_return_is_exactly_one(name: str, penalty: str, length: int):
    family = make_family(name, length=length, penalty=penalty)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(0), 50, "test"), oracle=True)
    assert (returns == 1.0).all()


def test_who_does_not_know_the_task_gets_one_too_by_fetching_the_cue():
    family = make_family("TMazeActive")
    tasks, slots = family.sample_tasks(np.random.default_rng(0), 40, "test"), np.arange(40)
    played = Played(family, 40)
    rows = played.reset(slots, tasks, slots)
    assert isinstance(rows.obs, np.ndarray)
    assert not rows.obs.any(), "the start tells nothing"
    total, seen = np.zeros(40), np.zeros(40)
    for step in range(23):
        actions = np.full(40, 2) if step == 0 else family.oracle_action(rows.obs, seen[:, None], rows.info)
        total += played.step(slots, actions).reward
        if step == 0:
            seen = rows.obs[:, 1].copy()
    assert (total == 1.0).all() and rows.terminated.all()


@pytest.mark.parametrize("name", BEHIND)
def test_who_guesses_is_right_half_of_the_time(name: str):
    family = make_family(name, length=5)
    tasks = family.sample_tasks(np.random.default_rng(0), 400, "test")
    played, guess = Played(family, 400), np.ones((400, 1))
    rows = played.reset(np.arange(400), tasks, np.arange(400))
    for _ in range(family.config.max_episode_steps):
        played.step(np.arange(400), family.oracle_action(rows.obs, guess, rows.info))
    assert rows.info[:, 3].mean() == 0.5 == (tasks > 0).mean()


@pytest.mark.parametrize("penalty", ["lagging", "wrong_action"])
@pytest.mark.parametrize("name, length", [("TMazePassive", 50), ("TMazePassive", 100), ("TMazeActive", 20)])
def test_the_returns_of_random_actions_are_the_reported_ones(name: str, length: int, penalty: str):
    family = make_family(name, length=length, penalty=penalty)
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=False)
    reference = family.spec.reference
    assert reference is not None and reference.oracle == 1.0
    assert returns.mean() == pytest.approx(
        reference.random, abs=4 * returns.std() / math.sqrt(len(returns)) + 0.001
    )


def test_the_horizon_follows_the_length_and_may_be_cut():
    assert make_family("TMazePassive").config.max_episode_steps == 101
    assert make_family("TMazePassive", length=500).config.max_episode_steps == 501
    assert make_family("TMazeActive").config.max_episode_steps == 23
    assert make_family("TMazeActive", length=500).spec.reference is None
    cut = make_family("TMazeActive", max_episode_steps=5)
    assert (cut.config.max_episode_steps, cut.spec.reference) == (5, None)

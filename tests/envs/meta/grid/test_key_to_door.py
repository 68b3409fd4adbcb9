"""KeyToDoor against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.grid.plain_rooms import DOOR_ROOM, KEY_ROOM, PLACES, PlainRooms, with_letter
from tests.envs.meta.played import Played, random_actions, returns_of


@pytest.mark.parametrize("seed", range(12))
def test_an_episode_is_what_the_definition_says(seed: int):
    family = make_family("KeyToDoor", apple_steps=90)
    rng = np.random.default_rng(seed)
    tasks = family.sample_tasks(rng, 1, "train")
    played = Played(family, 1)
    rows = played.reset([0], tasks, [seed])
    start = (int(rows.info[0, 1]), int(rows.info[0, 2]))
    assert start[0] in (4, 5) and 3 <= start[1] <= 7
    plain = PlainRooms(
        with_letter(KEY_ROOM, int(tasks[0, 0]), int(tasks[0, 1]), "k"), start, DOOR_ROOM, (3, 5), (15, 90, 10)
    )
    scripted = seed % 4 < 3
    for step in range(115):
        assert isinstance(rows.obs, dict)
        # Sometimes at random, so that walls are met and apples grow underfoot; in the last room the door is
        # passed and the room walked around.
        aimed = scripted and (step < 15 or rng.random() < 0.8)
        action = (
            family.oracle_action(rows.obs, tasks, rows.info) if aimed else random_actions(rng, family, 1)
        )[0]
        assert not rows.terminated[0]
        played.step([0], [action])
        reward = plain.step(int(action))
        if step + 1 == 15:
            plain.put_apples(int(rows.info[0, 3]))
            assert int(rows.info[0, 3]).bit_count() == 10
        assert rows.reward[0] == reward
        assert np.array_equal(rows.obs["image"][0], plain.image())
        assert rows.info[0].tolist() == [step + 1, *plain.player, plain.apples(), plain.done, plain.key]
    assert rows.terminated[0]
    assert plain.key or not scripted


def test_without_the_key_the_door_is_closed_and_worth_nothing():
    family = make_family("KeyToDoor", apple_steps=1)
    played = Played(family, 1)
    played.reset([0], family.sample_tasks(np.random.default_rng(0), 1, "train"), [0])
    for action in [1] * 16 + [0] * 9:
        assert played.step([0], [action]).reward[0] == 0
    assert played.rows.info[0, 1:3].tolist() == [2, 5]


def test_the_door_is_worth_five_once():
    family = make_family("KeyToDoor", apple_steps=1)
    played = Played(family, 1)
    tasks = family.sample_tasks(np.random.default_rng(0), 1, "train")
    rows, rewards = played.reset([0], tasks, [0]), []
    for step in range(26):
        aimed = int(family.oracle_action(rows.obs, tasks, rows.info)[0])
        rows = played.step([0], [aimed if step < 16 else (0, 0, 0, 1, 1, 0, 0, 0, 0, 0)[step - 16]])
        rewards.append(float(rows.reward[0]))
    assert rewards[16:] == [0, 5, 0, 0, 0, 0, 0, 0, 0, 0]
    assert rows.info[0, 4] == 1 and rows.terminated[0]


def test_key_start_and_apples_are_uniform_and_apples_and_start_differ_between_episodes():
    family = make_family("KeyToDoor")
    n = 8000
    tasks = family.sample_tasks(np.random.default_rng(0), n, "test")
    cells, counts = np.unique(tasks, axis=0, return_counts=True)
    assert {tuple(cell) for cell in cells.astype(int).tolist()} == {
        (r, c) for r in (1, 2) for c in range(3, 8)
    }
    assert (counts == n / 10).all()
    played = Played(family, n)
    rows = played.reset(
        np.arange(n), np.repeat(tasks[:1], n, axis=0), np.random.default_rng(1).integers(2**63, size=n)
    )
    _, starts = np.unique(rows.info[:, 1:3], axis=0, return_counts=True)
    assert len(starts) == 10 and np.abs(starts / n - 0.1).max() < 5 * math.sqrt(0.09 / n)
    for _ in range(15):
        played.step(np.arange(n), np.zeros(n))
    present = rows.info[:, 3].astype(np.int64)[:, None] >> np.arange(22) & 1
    assert (present.sum(axis=1) == 10).all() and len(PLACES) == 22
    share = 10 / 22
    assert np.abs(present.mean(axis=0) - share).max() < 5 * math.sqrt(share * (1 - share) / n)
    # Of a random ten out of 22, two given places are both in it with probability 10/22 * 9/21.
    both = present[:, 3] & present[:, 17]
    assert both.mean() == pytest.approx(share * 9 / 21, abs=5 * math.sqrt(0.16 / n))


@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(oracle: bool):
    family = make_family("KeyToDoor")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 2000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None and reference.oracle is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.05
    )
    if oracle:
        assert 26 < returns.mean() < 28 + 1, "the published optimum is about 28"


def test_the_horizon_follows_the_apple_steps_and_may_be_cut():
    assert make_family("KeyToDoor").config.max_episode_steps == 85
    assert make_family("KeyToDoor", apple_steps=500).config.max_episode_steps == 525
    cut = make_family("KeyToDoor", max_episode_steps=20)
    assert cut.config.max_episode_steps == 20
    assert cut.spec.reference is None

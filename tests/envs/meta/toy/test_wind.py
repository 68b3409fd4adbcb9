"""Wind against its definition and the measured facts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from envs.meta.toy.wind import published_winds
from tests.envs.meta.played import Played, random_actions, returns_of


def test_an_episode_is_what_the_definition_says():
    family = make_family("Wind", radius=0.3)
    rng = np.random.default_rng(0)
    tasks = family.sample_tasks(rng, 1, "train")
    played, rewards = Played(family, 1), []
    rows = played.reset([0], tasks, [0])
    wind_x, wind_y = tasks[0].tolist()
    x = y = 0.0
    for step in range(100):
        assert isinstance(rows.obs, np.ndarray)
        action = (
            family.oracle_action(rows.obs, tasks, rows.info) if step < 60 else random_actions(rng, family, 1)
        )[0]
        played.step([0], action[None])
        x = x + 0.1 * float(action[0]) + wind_x
        y = y + 0.1 * float(action[1]) + wind_y
        distance = math.sqrt(x * x + (y - 1.0) * (y - 1.0))
        assert rows.obs[0].tolist() == [np.float32(x), np.float32(y)]
        assert rows.reward[0] == (1.0 if distance <= 0.3 else 0.0)
        assert rows.info[0].tolist() == [distance, distance <= 0.3]
        assert not rows.terminated[0]
        rewards.append(rows.reward[0])
    assert set(rewards) == {0.0, 1.0}


def test_winds_are_uniform_in_their_square():
    tasks = make_family("Wind").sample_tasks(np.random.default_rng(0), 20_000, "test")
    for axis in (0, 1):
        along = (tasks[:, axis] + 0.08) / 0.16
        assert along.min() >= 0 and along.max() <= 1
        assert np.abs(np.quantile(along, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015
    assert abs(np.asarray(np.corrcoef(tasks.T))[0, 1]) < 0.03


def test_the_oracle_meets_the_measured_facts_on_the_published_winds():
    returns = returns_of(make_family("Wind"), published_winds(), oracle=True)
    assert returns.mean() == pytest.approx(63.2, abs=0.05)
    assert (returns.min(), returns.max()) == (32, 70)


@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(oracle: bool):
    family = make_family("Wind")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + (0.05 if oracle else 0.0005)
    )


def test_a_wind_that_is_inferred_from_the_first_step_is_enough():
    family = make_family("Wind")
    tasks = published_winds()
    slots = np.arange(len(tasks))
    played = Played(family, len(tasks))
    rows = played.reset(slots, tasks, slots)
    total, guess = np.zeros(len(tasks)), np.zeros_like(tasks)
    for step in range(75):
        assert isinstance(rows.obs, np.ndarray)
        before, actions = rows.obs.astype(np.float64), family.oracle_action(rows.obs, guess, rows.info)
        total += played.step(slots, actions).reward
        if step == 0:
            guess = rows.obs.astype(np.float64) - before - 0.1 * actions
    assert total.mean() == pytest.approx(63.2, abs=0.5)


def test_other_settings_have_no_reference():
    assert make_family("Wind", max_episode_steps=50).spec.reference is None

"""TreasureHunt against its definition and its purpose: that to climb the mountain pays, although it costs."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from envs.meta.make_env import make_family
from envs.meta.toy.plane import towards
from tests.envs.meta.played import Played, random_actions, returns_of

# Where the walk of the test goes before the treasure: onto the mountain, to its top, into a corner.
PLACES = np.array([(0.2, -0.1), (0.0, 0.0), (0.0, -0.05), (0.7, 0.1), (3.0, -3.0), (-1.4, 0.2)])


@pytest.mark.parametrize("height", [1.0, 3.0])
def test_an_episode_is_what_the_definition_says(height: float):
    family = make_family("TreasureHunt", mountain_height=height)
    rng, where = np.random.default_rng(0), Counter[str]()
    for task in family.sample_tasks(rng, 5, "train"):
        played, (x, y) = Played(family, 1), (0.0, -1.0)
        rows = played.reset([0], [task], [0])
        assert isinstance(rows.obs, np.ndarray)
        assert rows.obs[0].tolist() == [0, -1, 0, 0]
        for step in range(200):
            aim = PLACES[step // 20] if step < 20 * len(PLACES) else task
            action = towards(aim[None], rows.obs)[0] if step < 160 else 2 * random_actions(rng, family)
            played.step([0], action[None])
            x, y = (
                min(max(one + 0.1 * min(max(float(by), -1.0), 1.0), -1.5), 1.5)
                for one, by in zip((x, y), action, strict=True)
            )
            from_top, distance = math.sqrt(x * x + y * y), math.sqrt((x - task[0]) ** 2 + (y - task[1]) ** 2)
            if from_top <= 0.5:
                place, reward = "mountain", -height * (0.5 - from_top) - 5.0
            elif distance <= 0.1:
                place, reward = "treasure", 10.0
            else:
                place, reward = "outside" if from_top > 1 else "between", -5.0 * max(1.0, from_top)
            seen = task if from_top < 0.1 else np.zeros(2)
            assert rows.obs[0].tolist() == np.array([x, y, *seen], np.float32).tolist()
            assert rows.reward[0] == pytest.approx(reward, rel=1e-12)
            assert rows.info[0].tolist() == [pytest.approx(distance), distance <= 0.1]
            assert not rows.terminated[0]
            where.update(
                [place, *(["seen"] if from_top < 0.1 else []), *(["edge"] if 1.5 in (abs(x), abs(y)) else [])]
            )
    assert set(where) == {"mountain", "treasure", "outside", "between", "seen", "edge"}


def test_treasures_are_uniform_on_the_circle():
    family = make_family("TreasureHunt")
    for split in ("train", "test"):
        tasks = family.sample_tasks(np.random.default_rng(0), 20_000, split)
        assert np.allclose((tasks**2).sum(axis=1), 1.0)
        turns = np.arctan2(tasks[:, 1], tasks[:, 0]) / (2 * math.pi) % 1.0
        assert np.abs(np.quantile(turns, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


@pytest.mark.parametrize("oracle", [True, False])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(oracle: bool):
    family = make_family("TreasureHunt")
    returns = returns_of(family, family.sample_tasks(np.random.default_rng(1), 4000, "test"), oracle=oracle)
    reference = family.spec.reference
    assert reference is not None
    error = returns.std() / math.sqrt(len(returns))
    assert returns.mean() == pytest.approx(
        reference.oracle if oracle else reference.random, abs=4 * error + 0.05
    )
    assert make_family("TreasureHunt", mountain_height=2.0).spec.reference is None


def test_the_oracle_goes_around_the_mountain_in_the_fewest_steps():
    family = make_family("TreasureHunt")
    tasks = family.sample_tasks(np.random.default_rng(0), 1000, "test")
    played, slots, arrived = Played(family, 1000), np.arange(1000), np.full(1000, -1)
    rows = played.reset(slots, tasks, slots)
    for step in range(1, 30):
        rows = played.step(slots, family.oracle_action(rows.obs, tasks, rows.info))
        assert isinstance(rows.obs, np.ndarray)
        assert (np.linalg.norm(rows.obs[:, :2], axis=1) > 0.5).all()
        arrived[(rows.reward > 0) & (arrived < 0)] = step
    # No point can be there before both axes are within 0.1 of it, at a tenth a step; one that comes slantwise
    # sometimes needs a step more.
    fewest = np.maximum(np.ceil(np.abs(tasks - (0.0, -1.0)).max(axis=1) * 10 - 1 - 1e-9), 1)
    late = arrived - fewest
    assert late.min() >= 0 and late.max() <= 1 and late.mean() < 0.25


def adaptive(climbs: bool) -> float:
    """The mean return of a policy that goes to the treasure as soon as it is known.

    Until then it climbs the mountain, or else walks along the circle as fast as an action allows.
    """
    family = make_family("TreasureHunt")
    tasks = family.sample_tasks(np.random.default_rng(3), 2000, "test")
    slots, played = np.arange(2000), Played(family, 2000)
    rows, known, total = played.reset(slots, tasks, slots), np.full((2000, 2), np.nan), np.zeros(2000)
    angle = -math.pi / 2
    for _ in range(100):
        assert isinstance(rows.obs, np.ndarray)
        here = (math.cos(angle), math.sin(angle))
        ahead = [angle + arc for arc in np.linspace(0.1, 0.15, 51)]
        angle = max(
            one
            for one in ahead
            if max(abs(math.cos(one) - here[0]), abs(math.sin(one) - here[1])) <= 0.1 + 1e-9
        )
        target = np.zeros(2) if climbs else np.array([math.cos(angle), math.sin(angle)])
        rows = played.step(slots, towards(np.where(np.isnan(known), target, known), rows.obs))
        assert isinstance(rows.obs, np.ndarray)
        total += rows.reward
        unknown = np.isnan(known[:, 0])
        seen, felt = unknown & rows.obs[:, 2:].any(axis=1), unknown & (rows.reward > 0)
        known[seen] = rows.obs[seen, 2:]
        known[felt] = rows.obs[felt, :2]
    return float(total.mean())


def test_a_look_from_the_top_pays():
    climbing, searching = adaptive(climbs=True), adaptive(climbs=False)
    assert climbing > searching + 50
    assert (climbing, searching) == (pytest.approx(737, abs=5), pytest.approx(582, abs=10))


def test_nobody_who_stays_off_the_top_does_as_well_as_one_who_looks():
    # From one place the treasure is felt on 0.201 rad of the circle at most, from within 0.1 of the circle; a
    # step is 0.142 long at most, so it adds no more than 0.142 / 0.9 rad to what was felt. Found in step T,
    # the treasure brings 10 (101 - T) and has cost 5 (T - 1).
    felt = (0.201 + 0.142 / 0.9 * np.arange(1, 100)) / (2 * math.pi)
    earliest = 1.0 + np.maximum(1.0 - felt, 0.0).sum()
    assert adaptive(climbs=True) > 1015 - 15 * earliest

"""CyberDefence: its draws against the scores of the real simulator, its tasks, its options."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.attackers import Attacker
from envs.meta.make_env import make_family
from tests.envs.meta.played import Played
from utils.options import OptionError

# Means and standard errors of the real simulator's returns after 30, 50 and 100 steps.
INDEX = json.loads((Path(__file__).parent / "recorded" / "index.json").read_text())
HORIZONS = (30, 50, 100)

Policy = Callable[[np.random.Generator, int, int], np.ndarray]


def sleeping(rng: np.random.Generator, step: int, n: int) -> np.ndarray:
    return np.zeros(n, np.int64)


def uniform(rng: np.random.Generator, step: int, n: int) -> np.ndarray:
    return rng.integers(sc.NUM_ACTIONS, size=n)


def restoring_once(rng: np.random.Generator, step: int, n: int) -> np.ndarray:
    return np.full(n, sc.action_number(sc.RESTORE, sc.OP_SERVER) if step == 0 else sc.SLEEP)


def scores(policy: Policy, episodes: int, **options: Any) -> dict[int, tuple[float, float]]:
    """Mean return and standard error after each published horizon."""
    family, rng = make_family("CyberDefence", **options), np.random.default_rng(7)
    played, slots = Played(family, episodes), np.arange(episodes)
    tasks = family.sample_tasks(rng, episodes, "train")
    rows = played.reset(slots, tasks, rng.integers(2**62, size=episodes))
    total, found = np.zeros(episodes), {}
    for step in range(max(HORIZONS)):
        rows = played.step(slots, policy(rng, step, episodes))
        total += rows.reward
        if step + 1 in HORIZONS:
            found[step + 1] = float(total.mean()), float(total.std() / math.sqrt(episodes))
    return found


@pytest.mark.parametrize("red", ["bline", "meander", "sleep"])
@pytest.mark.parametrize(("name", "policy"), [("sleep", sleeping), ("random", uniform)])
def test_the_mean_returns_are_those_of_the_real_simulator(red: str, name: str, policy: Policy):
    recorded = INDEX[f"{red}__{name}"]
    for horizon, (mean, error) in scores(policy, 2000, red=red).items():
        theirs, their_error = recorded["mean"][str(horizon)], recorded["se"][str(horizon)]
        assert mean == pytest.approx(theirs, abs=3 * math.hypot(error, their_error) + 0.01), horizon


@pytest.mark.parametrize(("red", "expected"), [("bline", -280.9), ("meander", -316.6)])
def test_restoring_the_server_once_is_worth_a_lot_unless_impact_is_fixed(red: str, expected: float):
    mean, error = scores(restoring_once, 1000, red=red)[100]
    # The specification gives no error of these; its episodes were as many.
    assert mean == pytest.approx(expected, abs=5 * error)
    fixed, _ = scores(restoring_once, 1000, red=red, fix_impact=True)[100]
    assert fixed < -900


@pytest.mark.parametrize("red", ["bline", "meander", "sleep", "any"])
def test_red_says_who_is_drawn(red: str):
    tasks = make_family("CyberDefence", red=red).sample_tasks(np.random.default_rng(0), 30, "train")
    wanted = [0.0, 1.0, 2.0] if red == "any" else [float(Attacker[red])]
    values, counts = np.unique(tasks, return_counts=True)
    assert values.tolist() == wanted and len(set(counts.tolist())) == 1


# -- variant=hidden ------------------------------------------------------------------------------------------


def test_the_variants_have_their_numbers_of_episodes_and_their_splits():
    plain, hidden = make_family("CyberDefence"), make_family("CyberDefence", variant="hidden")
    assert (plain.config.max_rollouts_per_task, hidden.config.max_rollouts_per_task) == (1, 2)
    assert (plain.spec.split, hidden.spec.split) == (Split.shared, Split.disjoint)
    assert make_family("CyberDefence", max_rollouts_per_task=3).config.max_rollouts_per_task == 3


def test_a_hidden_sleeper_is_refused():
    with pytest.raises(OptionError, match="a sleeper has nothing to hide"):
        make_family("CyberDefence", variant="hidden", red="sleep")


def test_hidden_tasks_are_drawn_from_what_the_docstring_says():
    tasks = make_family("CyberDefence", variant="hidden").sample_tasks(np.random.default_rng(0), 3000, "test")
    assert set(tasks[:, 0]) == {0.0, 1.0} and set(tasks[:, 1]) == {9.0, 10.0, 11.0, 12.0}
    assert set(tasks[:, 2:6].ravel()) == {1.0, 2.0}
    for column, lowest in ((6, 0.5), (7, 0.6)):
        assert lowest <= tasks[:, column].min() < lowest + 0.01 and 0.99 < tasks[:, column].max() <= 1
    assert (np.sort(tasks[:, 8:16], axis=1) == np.arange(8)).all()
    assert (np.sort(tasks[:, 16:], axis=1) == np.arange(13)).all()


@pytest.mark.parametrize(("numbers", "most"), [(slice(8, 16), math.factorial(8)), (slice(16, 29), 10**9)])
def test_no_ranking_and_no_order_of_the_tests_stands_in_training(numbers: slice, most: int):
    family = make_family("CyberDefence", variant="hidden")
    # Streams of the same seed, and so many tasks that most rankings of a split are among them.
    train, test = (
        {task.tobytes() for task in family.sample_tasks(np.random.default_rng(3), 40_000, split)[:, numbers]}
        for split in ("train", "test")
    )
    assert not train & test
    # Both sides have about half of what there is, and places are as likely on both.
    assert all(min(40_000, most) * 0.35 < len(side) < max(40_001, most) for side in (train, test))


def test_rankings_and_orders_look_alike_in_both_splits():
    family = make_family("CyberDefence", variant="hidden")
    for split in ("train", "test"):
        tasks = family.sample_tasks(np.random.default_rng(4), 20_000, split)
        for first, places in ((8, 8), (16, 13)):
            counts = [
                np.bincount(tasks[:, first + one].astype(int), minlength=places) for one in range(places)
            ]
            # 5 standard errors of a count; a ranking is one of few, so it comes more than once.
            assert np.abs(np.array(counts) - 20_000 / places).max() < 5 * math.sqrt(2 * 20_000 / places)

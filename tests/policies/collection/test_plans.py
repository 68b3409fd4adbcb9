"""Plans: a trial is known by its number, whatever is planned beside it."""

from __future__ import annotations

import numpy as np

from policies.collection.plans import WavePlan
from utils.seeding import Phase

TASKS = np.random.default_rng(0).uniform(size=(4, 2))


def key(plan: WavePlan, index: int) -> tuple[list[float], int, float]:
    """The task, the seed and the first number of the action noise of a trial."""
    start = plan.start(index)
    assert start.seed is not None
    return np.asarray(start.task).tolist(), start.seed, plan.action_rng(index).random()


def test_a_list_is_played_in_its_order_whatever_its_first_number() -> None:
    plan = WavePlan.of_tasks(0, Phase.TRAIN, 10, TASKS)
    assert (plan.most, plan.budget) == (4, None)
    assert [key(plan, index)[0] for index in range(4)] == TASKS.tolist()


def test_the_same_number_is_the_same_trial_in_any_plan() -> None:
    early = WavePlan(0, Phase.TRAIN, 3, 5, lambda number: TASKS[number % 4])
    late = WavePlan(0, Phase.TRAIN, 5, 1, lambda number: TASKS[number % 4], budget=7)
    assert key(early, 2) == key(late, 0)


def test_another_root_phase_or_number_is_another_trial() -> None:
    plans = [
        WavePlan.of_tasks(root, phase, first, TASKS)
        for root, phase, first in (
            (0, Phase.TRAIN, 0),
            (1, Phase.TRAIN, 0),
            (0, Phase.WARMUP, 0),
            (0, Phase.TRAIN, 1),
        )
    ]
    assert len({key(plan, 0)[1:] for plan in plans}) == 4

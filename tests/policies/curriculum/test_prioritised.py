"""Prioritised level replay: chances as the published rule has them, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.curriculum.base import PlayedTrials, TrainingTasks
from policies.curriculum.prioritised import Prioritised, PrioritisedConfig

FOUR = np.array([[2.0, 0.0], [2.0, 1.0], [2.0, 2.0], [3.0, 0.0]])


def prioritised(tasks: np.ndarray = FOUR, **options: Any) -> Prioritised:
    family = make_family("GridNavi")
    return Prioritised(PrioritisedConfig(**options), TrainingTasks(family, tasks, 0))


def played(
    places: list[int], surprise: list[float] | None, returns: list[float] | None = None
) -> PlayedTrials:
    total = np.array(returns or [0.0] * len(places))[:, None]
    scores = None if surprise is None else np.array(surprise)
    return PlayedTrials(FOUR[places], total, total > 9, scores)


def test_chances_are_those_of_the_published_rule() -> None:
    curriculum = prioritised(beta=0.5, rho=0.25)
    curriculum.learn(played([0, 1, 2], [0.2, 0.9, 0.5]))
    # Ranks 3, 1, 2 to the power of -1 / 0.5; staleness 2, 1, 0. Task 3 was never played.
    by_score = np.array([1 / 9, 1, 1 / 4, 0]) / (1 / 9 + 1 + 1 / 4)
    by_staleness = np.array([2, 1, 0, 0]) / 3
    assert curriculum.chances == pytest.approx(0.75 * by_score + 0.25 * by_staleness)


def test_a_new_task_is_played_by_the_part_of_the_list_that_is_new() -> None:
    curriculum = prioritised()
    curriculum.learn(played([0, 1, 2], [0.2, 0.9, 0.5]))
    drawn = curriculum.group_of(np.stack([curriculum.draw(number) for number in range(600)]))
    shares = np.bincount(drawn, minlength=4) / 600
    assert shares[3] == pytest.approx(0.25, abs=0.05)
    assert shares[:3] / 0.75 == pytest.approx(curriculum.chances[:3], abs=0.05)


def test_before_any_trial_every_task_is_as_likely() -> None:
    curriculum = prioritised()
    drawn = curriculum.group_of(np.stack([curriculum.draw(number) for number in range(600)]))
    assert np.bincount(drawn) / 600 == pytest.approx(np.full(4, 0.25), abs=0.06)


def test_without_values_the_score_is_the_change_of_the_return() -> None:
    curriculum = prioritised()
    curriculum.learn(played([0, 1], None, [1.0, 4.0]))  # task 1 is 3 above the mean of all others so far
    assert curriculum.state_dict()["score"] == [0, 3, 0, 0]
    curriculum.learn(played([1, 0, 2], None, [5.0, -1.0, 4.0]))  # 2 is 2 above the mean of 5 and -1
    assert curriculum.state_dict()["score"] == [2, 1, 2, 0]


def test_equal_tasks_of_a_list_are_one() -> None:
    assert len(prioritised(np.concatenate([FOUR, FOUR])).groups) == 4


def test_a_run_without_a_list_is_refused() -> None:
    (problem,) = Prioritised.problems(PrioritisedConfig(), make_family("GridNavi"))
    assert (
        problem == "curriculum=prioritised plays tasks of a list again: give one by env.num_train_tasks=100."
    )

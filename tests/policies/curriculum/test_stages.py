"""Stages: one group after another, by the mean over the last trials of the present one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.curriculum.base import PlayedTrials, TrainingTasks
from policies.curriculum.stages import Stages, StagesConfig

PARTS = {name: {"family": "GridNavi", "size": size} for name, size in (("a", 3), ("b", 4), ("c", 5))}


def stages(**options: Any) -> Stages:
    family = make_family("Mixture", parts=PARTS)
    return Stages(StagesConfig(trials=4, threshold=0.75, **options), TrainingTasks(family, None, 0))


def played(part: int, successes: list[bool]) -> PlayedTrials:
    count = len(successes)
    tasks = np.tile([float(part), 2.0, 2.0], (count, 1))
    return PlayedTrials(tasks, np.zeros((count, 1)), np.array(successes)[:, None])


def parts_drawn(curriculum: Stages) -> list[float]:
    return [curriculum.draw(number)[0] for number in range(300)]


def test_a_stage_ends_when_its_last_trials_reach_the_threshold() -> None:
    curriculum = stages(review=0.0)
    assert set(parts_drawn(curriculum)) == {0}
    curriculum.learn(played(0, [True, False, False, True]))
    assert curriculum.metrics() == {"stage": 1}
    curriculum.learn(played(0, [True]))  # False, False, True, True: half of them
    assert curriculum.metrics() == {"stage": 1}
    curriculum.learn(played(0, [True]))  # False, True, True, True: three quarters
    assert curriculum.metrics() == {"stage": 2} and set(parts_drawn(curriculum)) == {1}


def test_trials_of_other_stages_do_not_count() -> None:
    curriculum = stages(review=0.0)
    curriculum.learn(played(1, [True] * 9))
    assert curriculum.metrics() == {"stage": 1}


def test_earlier_stages_are_reviewed() -> None:
    curriculum = stages(review=0.3)
    for part in (0, 1):
        curriculum.learn(played(part, [True] * 4))
    shares = np.bincount(np.array(parts_drawn(curriculum), int)) / 300
    assert shares[2] == pytest.approx(0.7, abs=0.08) and min(shares[:2]) > 0.08


def test_after_the_last_stage_all_tasks_are_drawn_as_without_a_curriculum() -> None:
    curriculum = stages(review=0.0)
    for part in (0, 1, 2):
        curriculum.learn(played(part, [True] * 4))
    assert curriculum.metrics() == {"stage": 4}
    uniform = [curriculum.tasks.uniform(number).tolist() for number in range(20)]
    assert [curriculum.draw(number).tolist() for number in range(20)] == uniform


def test_the_order_can_be_chosen() -> None:
    assert set(parts_drawn(stages(review=0.0, order=["c", "a", "b"]))) == {2}


@pytest.mark.parametrize(
    ("order", "says"),
    [(["a", "b", "d"], "there is no part 'd'"), (["a", "b"], "should name each part once: a, b, c")],
)
def test_a_wrong_order_is_refused(order: list[str], says: str) -> None:
    family = make_family("Mixture", parts=PARTS)
    assert any(says in problem for problem in Stages.problems(StagesConfig(order=order), family))

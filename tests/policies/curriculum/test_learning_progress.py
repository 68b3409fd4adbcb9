"""Learning progress: a group whose running means part is played more."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.curriculum.base import PlayedTrials, TrainingTasks
from policies.curriculum.learning_progress import LearningProgress, LearningProgressConfig


def progress() -> LearningProgress:
    config = LearningProgressConfig(fast=0.5, slow=0.1, explore=0.2)
    return LearningProgress(config, TrainingTasks(make_family("Mixture"), None, 0))


def played(part: int, successes: list[bool]) -> PlayedTrials:
    count = len(successes)
    tasks = np.tile([float(part), 2.0, 2.0], (count, 1))
    return PlayedTrials(tasks, np.zeros((count, 1)), np.array(successes)[:, None])


def test_without_progress_all_groups_are_as_likely() -> None:
    curriculum = progress()
    assert curriculum.chances.tolist() == [0.5, 0.5]
    curriculum.learn(played(0, [True] * 5))
    curriculum.learn(played(1, [False] * 5))
    assert curriculum.chances.tolist() == [0.5, 0.5], "mastered, and out of reach"


def test_running_means_are_those_of_the_rule() -> None:
    curriculum = progress()
    curriculum.learn(played(1, [False, True]))
    # fast = 0.5 and slow = 0.1 after one success: progress 0.4 in part 1, and none in part 0.
    assert curriculum.state_dict() == {"fast": [0, 0.5], "slow": [0, 0.1], "seen": [False, True]}
    assert curriculum.chances.tolist() == pytest.approx([0.1, 0.9])
    share = np.mean([curriculum.draw(number)[0] for number in range(400)])
    assert share == pytest.approx(0.9, abs=0.05)


def test_what_is_forgotten_comes_back() -> None:
    curriculum = progress()
    curriculum.learn(played(0, [True] * 30))
    curriculum.learn(played(1, [True] * 30))
    curriculum.learn(played(0, [False] * 2))
    assert curriculum.chances[0] > 0.85


def test_a_slow_mean_that_is_faster_is_refused() -> None:
    config = LearningProgressConfig(fast=0.1, slow=0.2)
    problems = list(LearningProgress.problems(config, make_family("Mixture")))
    assert problems == ["curriculum.slow=0.2 is faster than curriculum.fast=0.1: lower it."]

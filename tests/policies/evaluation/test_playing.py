"""What an evaluation finds out: every task's own returns, and their means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.actors import AgentActor, RandomActor
from policies.evaluation import evaluate_list
from policies.learner import Learner
from tests.runs import tiny_config
from tests.toys_faulty import FaultyFamily


def test_every_task_has_its_own_returns_and_successes_whose_mean_is_that_of_the_list() -> None:
    with Learner(tiny_config(evaluation={"trials_per_task": 2})) as learner:
        metrics = learner.evaluate()
        tasks = learner.eval_tasks
        # Each trial alone: trial 2i and 2i + 1 play task i.
        actor = AgentActor(learner.agent, learner.device, deterministic=True)
        trials = evaluate_list(learner.eval_env, actor, tasks, seed=learner.config.seed, trials_per_task=2)
    returns = np.array(metrics["eval/held_out/returns"])
    assert returns.shape == (len(tasks), 2)
    np.testing.assert_array_equal(returns, (trials.returns[0::2] + trials.returns[1::2]) / 2)
    for episode in (1, 2):
        mean = metrics[f"eval/held_out/return_episode_{episode}"]
        assert returns[:, episode - 1].mean() == pytest.approx(mean)
    successes = np.array(metrics["eval/train/successes"])
    assert successes.shape == (len(tasks), 2) and set(successes.ravel()) <= {0.0, 0.5, 1.0}


def played(folder: Path, times: int, *, repeats: bool = False) -> tuple[Any, int]:
    """The result of four tasks, the third of which fails so often; and how many trials were given up."""
    folder.mkdir()
    options = {"max_episode_steps": 4, "fault": "slot_error", "task_above": 5.0, "times": times}
    family = FaultyFamily(**options, where="step" if times else "nowhere", folder=str(folder))
    family.spec = replace(family.spec, deterministic=repeats)
    tasks = np.full((4, 2), 0.5)
    tasks[2, 0] = 9.0
    with ParallelEnvManager(family, 2, seed=1) as manager:
        result = evaluate_list(manager, RandomActor(family.spec.action_space), tasks, seed=3)
        return result, manager.faults.dropped_trials


def test_a_trial_that_cannot_be_rerun_is_played_again_up_to_three_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, _ = played(tmp_path / "whole", 0)
    for times in (1, 3):
        result, dropped = played(tmp_path / f"failed {times} times", times)
        assert dropped == times and not result.dropped.any()
        np.testing.assert_array_equal(result.returns, whole.returns)
        np.testing.assert_array_equal(result.lengths, whole.lengths)
    assert "No mean over this list" not in caplog.text
    result, dropped = played(tmp_path / "failed 4 times", 4)
    assert dropped == 4 and result.dropped.tolist() == [False, False, True, False]
    assert np.isnan(result.returns[2]).all() and "No mean over this list" in caplog.text
    # One that repeats itself is re-run from its key by recovery, and never given up.
    assert played(tmp_path / "repeats", 1, repeats=True)[1] == 0

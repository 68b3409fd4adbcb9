"""What an evaluation finds out: every task's own returns, and their means."""

from __future__ import annotations

import numpy as np
import pytest

from policies.collection.actors import AgentActor
from policies.evaluation import evaluate_list
from policies.learner import Learner
from tests.runs import tiny_config


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

"""Task lists: fixed by the seed, saved, and named honestly."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from envs.base import Split
from envs.meta.make_env import make_family
from policies.collection.actors import AgentActor
from policies.evaluation import (
    TaskLists,
    curves_of,
    evaluate_list,
    evaluation_table,
    held_out_name,
    write_evaluation,
)
from policies.learner import Learner
from policies.run.progress import Counters
from tests.runs import tiny_config
from tests.toys import CountingConfig, CountingFamily


def test_lists_are_fixed_by_the_seed() -> None:
    family = make_family("PointRobot", num_train_tasks=8, num_eval_tasks=5)
    first, again, other = (TaskLists.draw(family, seed) for seed in (0, 0, 1))
    assert first.train is not None and again.train is not None and other.train is not None
    np.testing.assert_array_equal(first.train, again.train)
    assert not np.array_equal(first.train, other.train)
    assert set(first.evaluation) == {"train", "held_out"}
    np.testing.assert_array_equal(first.evaluation["train"], first.train[:5])


def test_only_disjoint_splits_are_called_held_out() -> None:
    assert held_out_name(make_family("AntDir").spec) == "in_distribution"
    assert held_out_name(make_family("AntDir", variant="circle").spec) == "held_out"


def test_a_family_that_lies_about_its_splits_is_caught() -> None:
    class Liar(CountingFamily):
        def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> np.ndarray:
            return np.zeros((n, 2))

    family = Liar(CountingConfig(num_train_tasks=2))
    object.__setattr__(family.spec, "split", Split.disjoint)
    with pytest.raises(ValueError, match="disjoint"):
        TaskLists.draw(family, 0)


def test_lists_are_saved_for_readers(tmp_path: Path) -> None:
    lists = TaskLists.draw(make_family("PointRobot", num_eval_tasks=3), 0)
    lists.save(tmp_path / "tasks.json")
    saved = json.loads((tmp_path / "tasks.json").read_text())
    assert saved["training"] is None
    assert saved["evaluation_held_out"] == lists.evaluation["held_out"].tolist()


def test_curves_are_read_by_list_and_episode() -> None:
    line = {
        "eval/held_out/return_episode_1": 1.0,
        "eval/held_out/return_episode_2": 2.0,
        "eval/train/return_episode_1": 3.0,
        "loss/q": 0.0,
    }
    assert curves_of(line) == {"held_out": [1.0, 2.0], "train": [3.0]}


def test_the_table_shows_oracle_and_random_where_known() -> None:
    metrics = {
        f"eval/held_out/{name}_episode_{index}": index / 4
        for name in ("return", "success")
        for index in (1, 2)
    }
    table = evaluation_table(metrics, make_family("PointRobot").spec).splitlines()
    assert table[1].split() == ["held_out", "0.25", "0.50"]
    assert table[2].split()[-2:] == ["51.80", "51.80"] and table[3].split()[-1] == "1.20"
    assert table[-1].split() == ["held_out", "25%", "50%"]
    unknown = evaluation_table({"eval/train/return_episode_1": 1.0}, make_family("AntDir").spec)
    assert "oracle" not in unknown and "success" not in unknown


def test_a_mean_that_was_not_reported_comes_back_from_json_as_no_number() -> None:
    """JSON has no NaN, so a line of metrics has null there; the picture and the table leave it out."""
    curves = curves_of({"eval/held_out/return_episode_1": None, "eval/held_out/return_episode_2": 3.0})
    assert np.isnan(curves["held_out"][0]) and curves["held_out"][1] == 3.0


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


def test_a_task_whose_trial_was_given_up_is_null_in_the_file(tmp_path: Path) -> None:
    metrics = {
        "eval/train/returns": [[1.0, 2.0], [math.nan, math.nan]],
        "eval/train/return_episode_1": math.nan,
    }
    write_evaluation(tmp_path, Counters(env_steps=5), metrics)
    text = (tmp_path / "evaluation.json").read_text()
    saved = json.loads(text, parse_constant=pytest.fail)
    assert saved == {
        "env_steps": 5,
        "updates": 0,
        "eval/train/returns": [[1.0, 2.0], [None, None]],
        "eval/train/return_episode_1": None,
    }
    assert len(text.splitlines()) == len(saved) + 2, "one metric a line"

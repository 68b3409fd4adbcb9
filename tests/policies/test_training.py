"""The training loop: its rhythm of collecting, updating, evaluating and saving."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.learner import Learner
from policies.progress import Stage
from policies.training import Training
from tests.runs import metrics_of, tiny_config


def test_updates_follow_env_steps_with_the_fraction_carried_over() -> None:
    config = tiny_config(train={"updates_per_step": 0.03})
    with Learner(config) as learner:
        Training(learner).run()
        counters = learner.counters
    assert counters.updates == int(counters.env_steps * 0.03)
    assert counters.update_credit == pytest.approx(counters.env_steps * 0.03 % 1)


def test_a_run_without_a_pool_learns_from_its_own_trials() -> None:
    with Learner(tiny_config(train={"num_init_rollouts_pool": 0})) as learner:
        Training(learner).run()
        assert learner.counters.warmup_trials == 0 and learner.counters.updates > 0
        assert learner.counters.stage == Stage.collect.value


def test_evaluation_comes_at_multiples_of_its_interval_and_at_the_end(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.train()
    lines = metrics_of(tmp_path)
    evaluated = [line["env_steps"] for line in lines if "eval/held_out/return_episode_1" in line]
    first_past = [next(line["env_steps"] for line in lines if line["env_steps"] >= mark) for mark in (100, 200)]
    assert evaluated == sorted({*first_past, lines[-1]["env_steps"]})


def test_only_the_pool_is_random_and_it_is_logged(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.train()
    pool, *rest = metrics_of(tmp_path)
    assert pool["trials"] == 5 and pool["iteration"] == 0 and "pool/return_episode_1" in pool
    assert all("pool/return_episode_1" not in line and "train/return_episode_1" in line for line in rest)


def test_two_runs_of_one_seed_are_the_same_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Learner(tiny_config(), tmp_path / name) as learner:
            learner.train()
    assert metrics_of(tmp_path / "a") == metrics_of(tmp_path / "b")

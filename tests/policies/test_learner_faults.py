"""The Learner over environments that die: what it learns is the same, or the run ends with a sentence."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from envs.backends.base import BackendConfig, OnFault
from envs.base import Shard
from envs.parallel_env_manager import WorkerError
from policies.collection.wave import WaveResult
from policies.learner import Learner
from tests.runs import metrics_of, state_of, tiny_config


def test_a_failing_worker_ends_training_with_a_name_and_leaves_nothing_running(tmp_path: Path) -> None:
    config = tiny_config(workers=2, backend=BackendConfig(name="process", on_fault=OnFault["raise"]))
    with Learner(config, tmp_path) as learner:
        os.kill(learner.environments.worker_pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"slot 0.*SIGKILL"):
            learner.train()
        assert learner.train_env_parallel is not None


def test_training_through_killed_workers_equals_training_without(tmp_path: Path) -> None:
    """Rows, parameters, random streams and metrics: in collection and in evaluation, with the replay of the
    run that was not disturbed.
    """
    with Learner(tiny_config(), tmp_path / "whole") as whole:
        whole.train()
        expected = state_of(whole)
    config = tiny_config(workers=3, backend=BackendConfig(name="process", fault_budget=20))
    with Learner(config, tmp_path / "cut") as cut:
        rounds, tick = [0], cut.tick

        def killing(wave: WaveResult | None = None) -> bool:
            rounds[0] += 1
            if rounds[0] % 40 == 7:
                pids = cut.environments.worker_pids
                os.kill(pids[rounds[0] % len(pids)], signal.SIGKILL)
            return tick(wave)

        cut.tick = killing  # pyright: ignore[reportAttributeAccessIssue]
        cut.train()
        assert state_of(cut) == expected
    assert metrics_of(tmp_path / "cut") == metrics_of(tmp_path / "whole")
    last = json.loads((tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["faults/restarts"] >= 3 and "faults/dropped_trials" not in last


def test_dropped_trials_are_counted_and_stay_out_of_replay_and_means(tmp_path: Path) -> None:
    config = tiny_config(
        workers=3, backend=BackendConfig(name="process", on_fault=OnFault.drop, fault_budget=20)
    )
    with Learner(config, tmp_path) as learner:
        env = learner.train_env_parallel
        assert env is not None
        once = [True]

        def killing(wave: WaveResult | None = None) -> bool:
            if once[0] and wave is not None and wave.env_steps > 6:
                once[0] = False
                os.kill(env.pids[0], signal.SIGKILL)
            return False

        learner.tick = killing  # pyright: ignore[reportAttributeAccessIssue]
        result = learner.collect_wave(6, env=env)
        assert result.dropped.sum() == 1 == env.faults.dropped_trials
        assert learner.buffer.num_trials == 5 and learner.buffer.num_added == 6
        assert (
            len(learner.counters.recent_returns) == 5
            and np.isfinite(learner.counters.mean_return_by_episode).all()
        )
        learner.update()


def test_a_collection_of_nothing_but_given_up_trials_ends_the_run() -> None:
    with Learner(
        tiny_config(backend=BackendConfig(name="serial", on_fault=OnFault.drop, fault_budget=1000))
    ) as learner:
        reset = learner.environments.training.family.make_shard

        def broken(num_slots: int, threads: int = 1) -> Shard:
            shard = reset(num_slots, threads)
            shard.step = lambda slots, actions: 1 / 0  # pyright: ignore[reportAttributeAccessIssue]
            return shard

        learner.close()
        learner.family.make_shard = broken  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(WorkerError, match="All 3 trials of a collection were given up"):
            learner.collect_wave(3, random=True)


def test_a_mean_over_a_list_with_a_dropped_trial_is_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(
        "AntGoal", workers=3, backend=BackendConfig(name="process", on_fault=OnFault.drop, fault_budget=20)
    )
    with Learner(config, tmp_path) as learner:
        once = [True]

        def killing(wave: WaveResult | None = None) -> bool:
            if once[0]:
                once[0] = False
                os.kill(learner.eval_env.pids[0], signal.SIGKILL)
            return False

        learner.tick = killing  # pyright: ignore[reportAttributeAccessIssue]
        learner.report()
    values = json.loads(
        (tmp_path / "evaluation.json").read_text(), parse_constant=pytest.fail
    )  # NaN is no JSON
    for number in ("return_episode_1", "return_episode_2", "success_episode_1", "success_episode_2"):
        assert values[f"eval/train/{number}"] is None
        assert np.isfinite(values[f"eval/held_out/{number}"])
    assert "No mean over this list" in caplog.text

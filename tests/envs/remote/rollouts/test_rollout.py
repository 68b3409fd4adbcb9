"""Rollouts and their numbers: plain floats under the published names, and nothing is left out unseen."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from envs.remote.rollouts.rollout import Failure, ParallelRolloutStats, Rollout


def a_rollout(total: float, steps: int = 2, name: str = "easy", **more: Any) -> Rollout:
    rewards = [0.0] * (steps - 1) + [total] if steps else []
    dones = [False] * steps
    return Rollout([0] * steps, [1] * steps, rewards, dones, total, steps, name, **more)


def test_the_published_fields_come_first() -> None:
    names = [item.name for item in dataclasses.fields(Rollout)]
    assert names[:7] == [
        "observations",
        "actions",
        "rewards",
        "dones",
        "episode_return",
        "episode_length",
        "env_name",
    ]
    published = ["mean_return", "std_return", "min_return", "max_return", "mean_length", "total_steps"]
    names = [item.name for item in dataclasses.fields(ParallelRolloutStats)]
    assert names[:8] == [*published, "num_episodes", "env_breakdown"]


def test_numbers_over_rollouts() -> None:
    rollouts = [
        a_rollout(1.0),
        a_rollout(4.0, 6, "hard", attempts=3),
        a_rollout(3.0, env_s=0.1, agent_s=0.02),
    ]
    stats = ParallelRolloutStats.of(rollouts)
    assert stats.mean_return == statistics.fmean([1, 4, 3])
    assert stats.std_return == pytest.approx(np.std([1, 4, 3], ddof=0))
    assert (stats.min_return, stats.max_return, stats.num_episodes) == (1.0, 4.0, 3)
    assert (stats.total_steps, stats.mean_length, stats.retries) == (10, 10 / 3, 2)
    assert stats.env_breakdown == {"easy": 2.0, "hard": 4.0}
    assert (stats.env_ms, stats.agent_ms) == (10.0, 2.0)


def test_no_rollouts_and_one_have_numbers_too() -> None:
    assert dataclasses.asdict(ParallelRolloutStats.of([])) == dataclasses.asdict(ParallelRolloutStats())
    assert ParallelRolloutStats.of([a_rollout(2.0)]).std_return == 0.0
    assert ParallelRolloutStats.of([a_rollout(0.0, 0)]).env_ms == 0.0


def test_failures_are_told_and_all_of_it_is_json() -> None:
    stats = ParallelRolloutStats.of([a_rollout(2.0)], [Failure(3, "hard", TimeoutError("too late"))])
    assert stats.failures == [(3, "hard", "TimeoutError: too late")]
    assert json.loads(json.dumps(dataclasses.asdict(stats)))["failures"][0][0] == 3
    logged = stats.log_dict("train/")
    assert logged["train/mean_return"] == 2.0 and logged["train/return/easy"] == 2.0
    assert logged["train/failures"] == 1 and all(isinstance(one, int | float) for one in logged.values())


def test_an_error_says_whose_it_is() -> None:
    error = Failure(3, "hard", ValueError("x")).told()
    assert error.__notes__ == ["in episode 3 of hard"]


def test_scripts_import_every_published_name_from_one_place_and_torch_only_with_pad() -> None:
    code = """
import sys
from envs.remote.rollouts import AsyncParallelExecutor, HttpEnvClient, OpenEnvGymnasiumWrapper
from envs.remote.rollouts import ParallelEnvironmentExecutor, ParallelRolloutCollector
from envs.remote.rollouts import ParallelRolloutStats, Rollout
assert "torch" not in sys.modules
from envs.remote.rollouts import pad
print(OpenEnvGymnasiumWrapper.__module__, pad.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["envs.interop.openenv_wrapper", "buffers.rollout_tensors"]


def test_a_name_that_is_not_published_is_an_ordinary_import_error() -> None:
    import envs.remote.rollouts as published

    with pytest.raises(AttributeError, match="no attribute 'padd'"):
        _ = published.padd

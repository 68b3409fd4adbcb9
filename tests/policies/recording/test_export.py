"""A dataset holds the trials as they were played, each with its task and the key to play it again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.collection.actors import AgentActor
from policies.collection.wave import WavePlan, run_wave
from policies.learner import Learner
from policies.recording.export import export_trials
from tests.runs import tiny_config
from utils.options import OptionError
from utils.seeding import Phase

FLAGS = ("terminated", "truncated", "episode_start", "trial_start", "trial_end")


def exported(learner: Learner, file: Path, trials: int | None = None) -> dict[str, Any]:
    count = export_trials(learner, file, trials)
    with np.load(file) as found:
        arrays = dict(found)
    assert len(arrays["number"]) == count
    return arrays


def check(arrays: dict[str, Any], episodes: int = 2) -> None:
    """What holds of every dataset."""
    rows = len(arrays["reward"])
    assert all(len(arrays[name]) == rows for name in ("obs", "action", *FLAGS))
    assert arrays["num_rows"].sum() == rows
    assert (np.flatnonzero(arrays["trial_start"]) == arrays["first_row"]).all()
    assert (np.flatnonzero(arrays["trial_end"]) + 1 == arrays["first_row"] + arrays["num_rows"]).all()
    assert arrays["episode_start"].sum() == episodes * len(arrays["number"])
    assert (arrays["terminated"] | arrays["truncated"]).sum() == episodes * len(arrays["number"])


def test_the_stored_trials_are_those_that_were_played(tmp_path: Path) -> None:
    """The replay of a run, its random pool first, each with the task and the seed that it had."""
    with Learner(tiny_config(), tmp_path / "run") as learner:
        learner.train()
        arrays = exported(learner, tmp_path / "trials.npz")
        check(arrays)
        assert arrays["phase"].tolist() == ["WARMUP"] * 5 + ["TRAIN"] * (len(arrays["number"]) - 5)
        assert arrays["number"].tolist() == [*range(5), *range(len(arrays["number"]) - 5)]

        # The dense reward is the distance to the goal of the trial, which is its task.
        for task, first, count in zip(arrays["task"], arrays["first_row"], arrays["num_rows"], strict=True):
            rows = np.arange(first, first + count)[~arrays["episode_start"][first : first + count]]
            away = np.linalg.norm(arrays["obs"][rows, :2] - task, axis=1)
            assert np.allclose(arrays["reward"][rows], -away, atol=1e-4)


def test_on_policy_runs_play_trials_that_the_run_has_not_had(tmp_path: Path) -> None:
    with Learner(tiny_config(algorithm="PPO"), tmp_path / "run") as learner:
        learner.train()
        had = learner.counters.next_number
        arrays = exported(learner, tmp_path / "trials.npz", 7)
        check(arrays)
        assert arrays["number"].tolist() == list(range(had, had + 7))
        again = exported(learner, tmp_path / "again.npz", 7)
        for name, values in arrays.items():
            assert np.array_equal(values, again[name]), name


def test_what_was_played_can_be_played_again_by_its_key(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path / "run") as learner:
        learner.train()
        arrays = exported(learner, tmp_path / "trials.npz", 4)
        number = int(arrays["number"][2])
        added, tasks = learner.buffer.num_added, arrays["task"]
        plan = WavePlan(learner.config.seed, Phase.TRAIN, number - 2, 4, lambda at: tasks[at - number + 2])
        actor = AgentActor(learner.agent, learner.device)
        env, sink = learner.environments.training, learner.buffer
        run_wave(env, actor, plan, sink=sink, watch=learner.watch, tick=learner.tick)
        segment = learner.buffer.export(added, added + 4)
        for name in ("obs", "action", "reward"):
            assert np.array_equal(segment[name], arrays[name])


def test_tasks_that_followed_from_what_was_learned_are_not_guessed(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path / "run") as learner:
        learner.train()
        learner.counters.left_out = 3
        with pytest.raises(OptionError, match=r"export\.trials=N plays new trials"):
            export_trials(learner, tmp_path / "trials.npz")
        assert not (tmp_path / "trials.npz").exists()


def test_the_options_go_with_it_and_nothing_that_may_log_in(tmp_path: Path) -> None:
    config = tiny_config()
    config = replace(config, wandb=replace(config.wandb, notes="https://me:secret@host/"))
    with Learner(config, tmp_path / "run") as learner:
        learner.train()
        options = json.loads(str(exported(learner, tmp_path / "trials.npz", 3)["config"]))
    assert options["env"]["family"] == "PointRobot" and "secret" not in json.dumps(options)

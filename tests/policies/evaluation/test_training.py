"""An evaluation may differ from the training that a run folder records, and says in what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.runs import load_run
from policies.evaluation.outcome import assess
from policies.evaluation.training import RecordedTraining, evaluation_lists
from policies.learner import Learner
from policies.run.config import save
from tests.runs import metrics_of, tiny_config
from utils.checkpoint import CheckpointError
from utils.options import OptionError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of several evaluations."""
    folder = tmp_path_factory.mktemp("run")
    with Learner(tiny_config(evaluation={"every": 40}), folder) as learner:
        learner.train()
    return folder


def evaluated(run_dir: Path, *words: str) -> Learner:
    config, folder = load_run(run_dir, words)
    learner = Learner(config, folder, learns=False)
    learner.load()
    return learner


def test_an_evaluation_as_in_training_has_the_lists_of_training_and_repeats_its_numbers(
    run_dir: Path,
) -> None:
    last = metrics_of(run_dir)[-1]
    with evaluated(run_dir) as learner:
        found = assess(learner)
    assert not found.differs
    assert {name: last[name] for name in found.metrics} == found.metrics


def test_more_tasks_other_horizons_and_other_ranges_are_played_and_named(run_dir: Path) -> None:
    words = "env.num_eval_tasks=6", "env.max_episode_steps=9", "env.test_circle_radius=2"
    with evaluated(run_dir, *words) as learner:
        table = learner.report()
    saved = json.loads((run_dir / "evaluation.json").read_text())
    assert np.shape(saved["eval/train/returns"]) == np.shape(saved["eval/changed/returns"]) == (6, 2)
    assert "eval/held_out/returns" not in saved
    assert saved["differs_from_training"] == {
        "env.max_episode_steps": {"here": 9, "in_training": 6},
        "env.num_eval_tasks": {"here": 6, "in_training": 3},
        "env.test_circle_radius": {"here": 2.0, "in_training": None},
    }
    assert "env.test_circle_radius=2.0 (null in training)" in table


def test_the_episodes_of_a_trial_are_a_difference_too(run_dir: Path) -> None:
    training = RecordedTraining.of(run_dir)
    assert training is not None
    for words, expected in (
        (["evaluation.episodes_per_trial=2"], {}),
        (
            ["evaluation.episodes_per_trial=4"],
            {"evaluation.episodes_per_trial": {"here": 4, "in_training": 2}},
        ),
    ):
        assert training.differences(load_run(run_dir, words)[0]) == expected


def test_a_folder_without_a_record_leaves_nothing_to_differ_from(tmp_path: Path) -> None:
    assert RecordedTraining.of(tmp_path) is None and RecordedTraining.of(None) is None
    config = tiny_config()
    with Learner(config) as learner:
        lists = evaluation_lists(config, learner.family, None)
    assert list(lists.evaluation) == ["train", "held_out"]


def test_tasks_of_ones_own_are_played_by_the_name_of_their_list(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "far.json").write_text("[[0, 3], [3, 0], [2, 2], [0.5, 0.5]]")
    with evaluated(run_dir, f"evaluation.tasks={tmp_path / 'far.json'}") as learner:
        found = assess(learner).metrics
    assert np.shape(found["eval/far/returns"]) == (4, 2)
    assert {name.split("/")[1] for name in found} == {"far"}


def test_the_best_agent_is_the_one_whose_trials_were_best_on_the_test_list(run_dir: Path) -> None:
    evaluations = [line for line in metrics_of(run_dir) if "eval/held_out/return_episode_1" in line]
    trials = [
        line["eval/held_out/return_episode_1"] + line["eval/held_out/return_episode_2"]
        for line in evaluations
    ]
    best = evaluations[int(np.argmax(trials))]
    assert len(trials) > 2 and max(trials) > trials[-1], "another one than the last, or this shows nothing"
    with evaluated(run_dir, "evaluation.checkpoint=best") as learner:
        found = assess(learner)
    assert (found.checkpoint, found.counters.env_steps) == ("best", best["env_steps"])
    assert {name: best[name] for name in found.metrics} == found.metrics


def test_a_run_that_was_not_evaluated_has_no_best_agent(tmp_path: Path) -> None:
    with Learner(tiny_config(), tmp_path) as learner:
        learner.save()
    with pytest.raises(CheckpointError, match=r"no best agent.*evaluation\.checkpoint=last"):
        evaluated(tmp_path, "evaluation.checkpoint=best")


def test_a_run_in_training_takes_neither_tasks_of_ones_own_nor_the_best_agent(run_dir: Path) -> None:
    config = load_run(run_dir, ["evaluation.checkpoint=best"])[0]
    with pytest.raises(OptionError, match=r"give it with evaluate=RUN"):
        Learner(config)
    config = tiny_config(evaluation={"tasks": "far.json"})
    with pytest.raises(OptionError, match=r"evaluation\.tasks=far\.json is for a trained run"):
        Learner(config)


def test_no_file_of_the_run_but_those_of_the_evaluation_changes(run_dir: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in run_dir.rglob("*") if file.is_file()}

    before = files()
    with evaluated(run_dir, "env.num_eval_tasks=2") as learner:
        learner.report()
    changed = {file.name for file, content in files().items() if before.get(file) != content}
    assert changed == {"evaluation.json", "references.json"}


def test_what_one_command_permits_is_no_difference(tmp_path: Path) -> None:
    """So a run on a service that was served for it is evaluated on its own lists."""
    options: dict[str, Any] = {"observation": ["numbers:4"], "actions": ["column:4"]}
    secret = {"serve": "module:app", "headers_from_env": ["X-Key:HOME"]}
    for family, env in (
        ("OpenEnv", options | secret),
        ("Mixture", {"parts": {"far": {"family": "OpenEnv"} | options | secret}}),
    ):
        config = tiny_config(family, env=env)
        save(config, tmp_path)
        training = RecordedTraining.of(tmp_path)
        assert training is not None and not training.differences(config)

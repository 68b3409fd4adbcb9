"""What is kept of an evaluation, and what is said of several runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from envs.meta.make_env import make_family
from policies.evaluation.outcome import Outcome, side_by_side
from policies.evaluation.table import Levels
from policies.run.progress import Counters
from tests.utils.report.made_runs import make_run

MEASURED = {"train": {"random": [0.25, 0.5]}}
NARROW = {"env.circle_radius": {"here": 0.5, "in_training": 1.0}}


def outcome(differs: dict[str, Any] | None = None) -> Outcome:
    metrics = {
        "eval/train/returns": [[1.0, 2.0], [math.nan, math.nan]],
        "eval/train/return_episode_1": math.nan,
    }
    counters = Counters(env_steps=5000, updates=7)
    return Outcome(
        metrics, make_family("AntDir").spec, "best", counters, differs or {}, Levels(measured=MEASURED)
    )


def test_the_file_says_what_was_evaluated_and_null_where_a_trial_was_given_up(tmp_path: Path) -> None:
    outcome(NARROW).write(tmp_path)
    text = (tmp_path / "evaluation.json").read_text()
    saved = json.loads(text, parse_constant=pytest.fail)
    assert saved == {
        "env_steps": 5000,
        "updates": 7,
        "checkpoint": "best",
        "differs_from_training": NARROW,
        "eval/train/returns": [[1.0, 2.0], [None, None]],
        "eval/train/return_episode_1": None,
        "measured": MEASURED,
    }
    assert len(text.splitlines()) == len(saved) + 2, "one metric a line"


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome().write(tmp_path / "gone")
    assert "shown here only" in caplog.text


def test_the_table_says_which_checkpoint_and_what_differs_from_training() -> None:
    first, second, *_ = outcome(NARROW).table().splitlines()
    assert first == "the best checkpoint: 5,000 env steps, 7 updates"
    assert second == "not as in training: env.circle_radius=0.5 (1.0 in training)"
    assert "not as in training" not in outcome().table()


def test_runs_are_told_apart_by_what_their_folders_do_not_share(tmp_path: Path) -> None:
    table = side_by_side({tmp_path / "a" / "0": outcome(NARROW), tmp_path / "b" / "0": outcome()})
    lines = table.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["a/0", "b/0", "random,", "a/0"]
    assert lines[-1] == "a/0 not as in training: env.circle_radius=0.5 (1.0 in training)"


def test_runs_on_disk_have_the_names_of_their_settings_beside_their_folders(tmp_path: Path) -> None:
    for folder, algorithm, seed in (("0", "SAC", 3), ("1", "TD3", 3), ("2", "TD3", 4)):
        make_run(tmp_path / folder, [[[1.0, 2.0]]], seed=seed, algorithm__name=algorithm)
    table = side_by_side({tmp_path / folder: outcome() for folder in "012"})
    names = [line.split("  ")[0] for line in table.splitlines()[1:4]]
    assert names == ["0 algorithm=SAC seed=3", "1 algorithm=TD3 seed=3", "2 algorithm=TD3 seed=4"]
    alone = side_by_side({tmp_path / folder: outcome() for folder in "12"}).splitlines()
    assert alone[1].startswith("1 seed=3  ") and alone[2].startswith("2 seed=4  ")

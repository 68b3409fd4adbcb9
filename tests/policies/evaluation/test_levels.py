"""What has no recorded reference is measured on the lists of the run, once, and shown as measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest

from configs.runs import load_run
from envs.meta.toy.point_robot import PointReward, PointRobot, PointStart
from envs.parallel_env_manager import ParallelEnvManager
from policies.evaluation import levels
from policies.evaluation.levels import REFERENCES, levels_of
from policies.evaluation.outcome import assess
from policies.evaluation.table import Levels, evaluation_table
from policies.learner import Learner
from tests.runs import tiny_config
from tests.toys import CountingFamily

AS_RECORDED = {"max_episode_steps": 60, "reward": PointReward.sparse}


@pytest.fixture(autouse=True, scope="module")
def picture() -> Iterator[Mock]:
    """Drawing takes longer than all else here."""
    with patch("policies.run.record.draw_adaptation") as picture:
        yield picture


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a family that has an oracle, under settings for which no reference is recorded."""
    folder = tmp_path_factory.mktemp("run")
    trained(folder)
    return folder


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


def trained(folder: Path, **options: Any) -> Learner:
    with Learner(tiny_config(train={"n_env_steps_total": 80}, **options), folder) as learner:
        learner.train()
    return learner


def test_the_end_of_a_run_shows_what_random_actions_and_the_oracle_return_on_its_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], picture: Mock
) -> None:
    learner = trained(tmp_path)
    shown = capsys.readouterr().out
    assert "    random, measured" in shown and "    oracle, measured" in shown

    kept = {entry["list"]: entry for entry in json.loads((tmp_path / REFERENCES).read_text()).values()}
    assert set(kept) == set(learner.tasks.evaluation)
    for entry in kept.values():
        assert len(entry["oracle"]) == 2 and np.min(entry["oracle"]) > np.max(entry["random"])
    means = {f"{policy}, measured": np.mean(kept["held_out"][policy]) for policy in ("random", "oracle")}
    assert picture.call_args.kwargs["levels"] == pytest.approx(means)


@pytest.mark.parametrize("oracle", [False, True])
def test_the_oracle_is_played_on_the_tasks_of_the_list_and_sees_the_rows_of_its_family(
    tmp_path: Path, oracle: bool
) -> None:
    """Where the agent is shown the task, its rows have more numbers than those of the family."""
    learner = trained(tmp_path, env={"start": PointStart.fixed, "oracle": oracle})
    family, tasks = learner.family, learner.eval_tasks
    with ParallelEnvManager(family, len(tasks), seed=0) as manager:
        rows = manager.reset(tasks=tasks)
        returns = np.zeros(len(tasks))
        for _ in range(family.config.max_episode_steps):
            rows = manager.step(family.oracle_action(rows.obs, tasks, rows.info))
            returns += rows.reward
    found = levels_of(learner).measured["held_out"]["oracle"]
    assert found == pytest.approx([returns.mean()] * 2)


def test_what_was_measured_is_kept_for_the_same_lists_alone(run_dir: Path) -> None:
    first = evaluated(run_dir)
    with patch.object(levels, "evaluate_list", side_effect=AssertionError("measured again")):
        assert evaluated(run_dir) == first
    other = evaluated(run_dir, "env.num_eval_tasks=4")
    assert set(other.measured) == set(first.measured) and other != first
    assert len(json.loads((run_dir / REFERENCES).read_text())) == 4


def evaluated(run_dir: Path, *words: str) -> Levels:
    config, folder = load_run(run_dir, words)
    with Learner(config, folder, learns=False) as learner:
        learner.load()
        return assess(learner).levels


@pytest.mark.parametrize("content", ["[1]", "{", '{"a": 1, "b": {"random": ["x"]}}', "[" * 5000])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / REFERENCES).write_text(content)
    assert levels._read(tmp_path / REFERENCES) == levels._read(tmp_path / "none") == {}


def test_recorded_references_are_shown_unless_other_tasks_are_chosen(tmp_path: Path) -> None:
    reference = trained(tmp_path, env=AS_RECORDED).family.spec.reference
    assert reference is not None and reference.oracle is not None
    assert evaluated(tmp_path) == Levels(reference)
    assert not (tmp_path / REFERENCES).exists()

    (tmp_path / "far.json").write_text("[[5.0, 0.0], [0.0, 5.0]]")
    found = evaluated(tmp_path, f"evaluation.tasks={tmp_path / 'far.json'}")
    assert found.recorded is None and set(found.measured) == {"far"}
    assert reference.oracle > max(found.measured["far"]["oracle"]), "the way is longer"
    shorter = evaluated(tmp_path, "env.max_episode_steps=9")
    assert shorter.recorded is None and set(shorter.measured) == {"train", "held_out"}


def test_what_takes_too_long_is_left_out_and_a_stopped_run_measures_nothing(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = Learner(tiny_config(), run_dir)
    (run_dir / REFERENCES).unlink()
    assert levels_of(learner, seconds=-1.0) == Levels()
    assert "less to compare with: playing it would take over" in caplog.text
    caplog.clear()
    learner._stop.received = 15
    assert levels_of(learner) == Levels() and not caplog.text
    learner.close()


def test_an_oracle_that_fails_is_a_sentence_and_random_actions_are_shown(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = Learner(tiny_config(), run_dir)
    (run_dir / REFERENCES).unlink()
    with patch.object(PointRobot, "oracle_action", side_effect=KeyError("goal")):
        found = levels_of(learner)
    learner.close()
    assert {policy for of in found.measured.values() for policy in of} == {"random"}
    assert "oracle_action failed: KeyError: 'goal'" in caplog.text


def test_a_family_without_an_oracle_has_random_actions_alone_and_lists_have_their_own_lines() -> None:
    assert set(levels._actors(CountingFamily())) == {"random"}
    returns = {"eval/train/return_episode_1": 1.0, "eval/far/return_episode_1": 2.0}
    measured = {"train": {"random": [0.25]}, "far": {"random": [0.75]}}
    table = evaluation_table(returns, CountingFamily().spec, Levels(measured=measured)).splitlines()
    assert [line.split()[-1] for line in table[1:]] == ["1.00", "0.25", "2.00", "0.75"]

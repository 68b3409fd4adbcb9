"""Run folders as a report reads them: finished, interrupted, damaged, and those that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from policies.run import config
from tests.utils.report.made_runs import line, make_run
from utils.options import OptionError
from utils.report import folders
from utils.report.folders import find_runs, jobs_not_begun

TABLES = [[[1.0, 2.0], [3.0, 4.0]], [[2.0, 4.0], [6.0, 8.0]], [[3.0, 6.0], [9.0, 12.0]]]


def test_the_files_are_those_that_a_run_writes() -> None:
    assert (folders._RECORD, folders._FORMAT) == (config.RECORD, config.FORMAT)


def test_a_run_has_its_options_and_its_evaluations_on_test_tasks(tmp_path: Path) -> None:
    make_run(tmp_path / "a", TABLES, seed=3)
    (run,) = find_runs([tmp_path]).runs
    assert run.seed == 3 and run.settings["agent.hidden"] == [64, 64] and run.tasks == "held_out"
    assert run.finished and not run.remarks
    assert [one.env_steps for one in run.evaluations] == [1000, 2000, 3000]
    assert [one.seconds for one in run.evaluations] == [10.0, 20.0, 30.0]
    assert [one.returns.tolist() for one in run.evaluations] == [[2, 3], [4, 6], [6, 9]]
    assert [one.trial_return for one in run.evaluations] == [5, 10, 15]
    by_task = run.evaluations[-1].by_task
    assert by_task is not None and np.array_equal(by_task, TABLES[-1])


def test_runs_are_found_at_any_depth_once_and_in_a_persons_order(tmp_path: Path) -> None:
    for job in (10, 9, 2):
        make_run(tmp_path / "sweep" / str(job), TABLES, seed=job)
    # W&B keeps a config.yaml of its own in a run's folder.
    (tmp_path / "sweep/2/wandb/files").mkdir(parents=True)
    (tmp_path / "sweep/2/wandb/files/config.yaml").write_text("_wandb: {}\n")
    found = find_runs([tmp_path, tmp_path / "sweep" / "9"])
    assert [run.seed for run in found.runs] == [2, 9, 10] and not found.left_out


def test_an_interrupted_run_says_how_far_it_came_and_a_failed_one_where_to_look(tmp_path: Path) -> None:
    make_run(tmp_path / "0", TABLES[:2])
    make_run(tmp_path / "1", TABLES[:1])
    (tmp_path / "1/error.log").write_text("a traceback\n")
    make_run(tmp_path / "2", [])
    stopped, failed, begun = find_runs([tmp_path]).runs
    assert stopped.remarks == ("unfinished (running or interrupted): 2,000 of 3,000 env steps",)
    assert failed.remarks == ("unfinished (failed, see its error.log): 1,000 of 3,000 env steps",)
    assert begun.env_steps == 500 and begun.remarks[-1] == "it was not evaluated yet"


def test_damaged_and_half_written_lines_and_lost_trials_are_named_and_left_out(tmp_path: Path) -> None:
    file = make_run(tmp_path / "0", TABLES) / "metrics.jsonl"
    lost = line(2500, 25.0, [[1.0, 2.0]]) | {"eval/held_out/return_episode_1": None}
    lines = file.read_text().splitlines()
    endless = lines[1].replace("1000", "1e999", 1)
    assert endless != lines[1]
    lines[2:2] = ['{"env_steps": 1500, "eval/held_out/return_', json.dumps(lost), endless]
    file.write_text("\n".join(lines) + '\n{"env_steps": 9000, "eval/')
    (run,) = find_runs([tmp_path]).runs
    assert [one.env_steps for one in run.evaluations] == [1000, 2000, 3000] and run.env_steps == 3000
    damaged, empty = run.remarks
    assert "2 damaged lines" in damaged and "1 evaluations are left out: trials were given up" in empty


def test_folders_that_hold_means_alone_are_read_too(tmp_path: Path) -> None:
    file = make_run(tmp_path / "0", TABLES) / "metrics.jsonl"
    means = [json.loads(text) for text in file.read_text().splitlines()]
    for one in means:
        one.pop("eval/held_out/returns", None)
    file.write_text("".join(f"{json.dumps(one)}\n" for one in means))
    (run,) = find_runs([tmp_path]).runs
    assert run.evaluations[-1].by_task is None and run.evaluations[-1].trial_return == 15


BOMB = "format: 2\na: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}, *{before}, *{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("format: 1\nseed: 0\n", "has format 1, and this version of Retrial reads format 2"),
        ("seed: 0\n", "has no format that is known"),
        ("format: 2\nseed: zero\n", "has no seed"),
        ("format: [2\n", "cannot be read"),
        ("format: 2\na: !!python/object/apply:os.system [touch here]\n", "cannot be read"),
        (BOMB, "cannot be read: it has an alias"),
        ("a: " + "x" * 1_000_001, "cannot be read: it has more than 1,000,000 bytes"),
        (None, "has no config.yaml: its run has not begun, or failed before it could"),
    ],
    ids=["another format", "no format", "wrong type", "no YAML", "code", "aliases", "size", "no record"],
)
def test_what_cannot_be_read_is_left_out_with_its_reason(
    tmp_path: Path, record: str | None, reason: str
) -> None:
    make_run(tmp_path / "0", TABLES)
    (tmp_path / "1/.hydra").mkdir(parents=True)
    if record is not None:
        (tmp_path / "1/config.yaml").write_text(record)
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    ((folder, said),) = found.left_out
    assert folder == tmp_path / "1" and reason in said
    with pytest.raises(OptionError, match=re.escape(reason)):
        find_runs([tmp_path / "1"])


def test_a_folder_without_runs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"There is no run in .*: a run's folder holds a config\.yaml"):
        find_runs([tmp_path])


def test_a_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere/0", TABLES)
    make_run(tmp_path / "here/0", TABLES, seed=1)
    (tmp_path / "here/link").symlink_to(tmp_path / "elsewhere")
    assert [run.seed for run in find_runs([tmp_path / "here"]).runs] == [1]


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["seed=0,1,2", "algorithm=SAC,TD3", "agent.hidden=[64,64]"], 4),
        (["seed=0,1"], 0),
        (["seed=range(5)"], 0),
        ("no list", 0),
    ],
)
def test_jobs_of_a_sweep_that_have_not_begun_are_counted(tmp_path: Path, words: Any, missing: int) -> None:
    for job in (0, 1):
        make_run(tmp_path / str(job), TABLES, seed=job)
    assert jobs_not_begun(tmp_path) == 0
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump({"hydra": {"overrides": {"task": words}}}))
    assert jobs_not_begun(tmp_path) == missing


@pytest.mark.parametrize("text", ["", "[]", '{"levels": 3}', '{"levels": {"oracle": NaN, "random": true}}'])
def test_a_record_of_levels_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    folder = make_run(tmp_path / "run", [[[1.0, 2.0]]], levels={"oracle": 15.4, "random": 0.0})
    (run,) = find_runs([folder]).runs
    assert run.levels == {"oracle": 15.4, "random": 0.0}
    (folder / "used.json").write_text(text)
    (run,) = find_runs([folder]).runs
    assert run.levels == {}

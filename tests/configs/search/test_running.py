"""A search that is killed and typed again comes to what it would have come to; its best can be run."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from configs import cli
from configs.search import running
from configs.search.command import SearchCommand
from configs.search.running import run_search
from policies.run.config import Config, read_record
from tests.runs import metrics_of
from utils.report.command import write_report

pytestmark = pytest.mark.peers
pytest.importorskip("optuna")

ROOT = Path(__file__).resolve().parents[3]
WORDS = (
    "env=PointRobot",
    "env.reward=dense",
    "env.max_episode_steps=6",
    "env.num_eval_tasks=3",
    "train.n_env_steps_total=900",
    "train.num_init_rollouts_pool=5",
    "train.updates_per_step=0.05",
    "num_slots=4",
    "evaluation.every=300",
    "checkpoint_every=150",
    "backend=serial",
    "wandb.mode=disabled",
    "algorithm.learning_rate=tag(log,interval(1e-4,1e-2))",
    "memory.hidden_size=choice(8,16)",
    "search.trials=4",
)


def started(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "main.py", f"search={folder}", *WORDS, *more]
    with (folder.parent / f"{folder.name}.txt").open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, text=True, stdout=file, stderr=subprocess.STDOUT)


def said(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.txt").read_text()


def wait_for(path: Path, process: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + 240
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, said(folder)
        time.sleep(0.005)


def rows_in(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "search.csv").read_text())))


@pytest.mark.slow
def test_a_search_that_is_killed_and_typed_again_is_the_one_that_was_not(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert started(whole).wait(240) == 0, said(whole)
    for run, ending in (("1", signal.SIGKILL), ("2", signal.SIGTERM)):
        process = started(parts)
        wait_for(parts / run / "checkpoints", process, parts)
        os.kill(process.pid, ending)
        assert process.wait(60) in (-ending, 128 + ending)
    assert started(parts).wait(240) == 0, said(parts)
    assert (parts / "search.csv").read_text() == (whole / "search.csv").read_text()
    for run in range(4):
        assert metrics_of(parts / str(run)) == metrics_of(whole / str(run))
    _check_results(whole)


def _check_results(folder: Path) -> None:
    """The folder is one of runs like any other, and the best settings are an experiment."""
    for name in ("search.md", "search.png", "search.svg"):
        assert (folder / name).stat().st_size > 100
    rows = rows_in(folder)
    best = max((row for row in rows if row["state"] == "complete"), key=lambda row: float(row["return"]))
    assert rows[0] == best
    config = load_of_best(folder)
    assert str(config["algorithm"]["learning_rate"]) == best["algorithm.learning_rate"]
    assert str(config["memory"]["hidden_size"]) == best["memory.hidden_size"]
    assert "PointRobot" in write_report([folder])


def load_of_best(folder: Path) -> dict[str, Any]:
    """The config that the experiment of a search composes, through the front door."""
    command = [sys.executable, "main.py", "--config-dir", str(folder), "experiment=best", "seed=5"]
    out = folder.parent / "confirmed"
    done = subprocess.run(
        [*command, f"hydra.run.dir={out}", "wandb.mode=disabled"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    settings = read_record(out / "config.yaml")
    assert settings["seed"] == 5 and settings["train"]["n_env_steps_total"] == 900
    return settings


@pytest.mark.slow
def test_two_processes_share_a_study(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    both = [started(folder), started(folder)]
    assert [process.wait(240) for process in both] == [0, 0], said(folder)
    rows = rows_in(folder)
    assert sorted(row["run"] for row in rows) == list("0123")
    assert {row["state"] for row in rows} <= {"complete", "pruned"}


# -- with runs that only say what they returned --------------------------------------------------------------


@pytest.fixture(autouse=True)
def _logs_closed() -> Iterator[None]:
    """Hydra keeps the log of a job open until the next one begins."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, logging.FileHandler)]:
        root.removeHandler(handler)
        handler.close()


def search_of(folder: Path, *words: str) -> SearchCommand:
    found = cli.read([f"search={folder}", *WORDS[:-3], *words]).search
    assert found is not None
    return found


class Told:
    """Stands for the front door's way to act with a learner: a run returns what its settings say."""

    def __init__(self, height: Callable[[Config], float]) -> None:
        self.height, self.lines = height, list[int]()

    def __call__(self, act: Any, config: Config, family: Any, folder: Path, **how: Any) -> float:
        followers, learner = how["host"].followers, Mock()

        def train() -> float:
            for env_steps in range(300, 901, 300):
                self.lines.append(env_steps)
                curve = {"eval/train/return_episode_1": 100.0, "eval/held_out/return_episode_1": 50.0}
                curve["eval/held_out/return_episode_2"] = self.height(config)
                followers[0].log(env_steps, curve)
            return math.nan

        learner.train = train
        return act(learner)


SIZES = "memory.hidden_size=range(8,72,8)"


def test_the_return_of_the_last_episode_is_what_counts_unless_the_trial_is_asked_for(tmp_path: Path) -> None:
    told = Told(lambda config: float(vars(config.memory)["hidden_size"]))
    for objective, more in {"last_episode": 0, "trial": 50}.items():
        search = search_of(tmp_path / objective, SIZES, f"search.objective={objective}", "search.trials=3")
        text, exit_code = run_search(search, told, failed=1)
        assert exit_code == 0 and "3 complete" in text
        for row in rows_in(search.folder):
            assert float(row["return"]) == int(row["memory.hidden_size"]) + more
        # A search that has what it was asked for makes nothing more.
        before = len(told.lines)
        run_search(search, told, failed=1)
        assert len(told.lines) == before


def test_runs_that_fall_behind_are_stopped_at_an_evaluation(tmp_path: Path) -> None:
    told = Told(lambda config: float(vars(config.memory)["hidden_size"]))
    search = search_of(tmp_path / "study", SIZES, "search.trials=9")
    assert "pruned" in run_search(search, told, failed=1)[0]
    rows = rows_in(search.folder)
    stopped = [row for row in rows if row["state"] == "pruned"]
    # A stopped run had one evaluation, any other one three.
    assert len(told.lines) == 3 * len(rows) - 2 * len(stopped)
    complete = [float(row["return"]) for row in rows if row["state"] == "complete"]
    assert max(float(row["return"]) for row in stopped) < statistics.median(complete)


def test_a_run_that_fails_is_told_and_does_not_end_the_search(tmp_path: Path) -> None:
    def height(config: Config) -> float:
        if vars(config.memory)["hidden_size"] > 40:
            raise SystemExit(1) from OSError("no room on the disk")
        return 1.0

    search = search_of(tmp_path / "study", SIZES, "search.trials=6")
    text, exit_code = run_search(search, Told(height), failed=1)
    assert exit_code == 1 and "no room on the disk" in text
    states = [row["state"] for row in rows_in(search.folder)]
    assert set(states) == {"complete", "failed"} and len(states) == 6


def test_settings_that_contradict_each_other_fail_with_their_sentence(tmp_path: Path) -> None:
    """Each end was checked beside the first ends of the others, which cannot find every contradiction."""
    empty = ("agent.reward_embedding=0", "agent.obs_embedding=8,0", "agent.action_embedding=4,0")
    search = search_of(tmp_path / "study", *empty, "search.trials=10")
    text, exit_code = run_search(search, Told(lambda config: 1.0), failed=1)
    assert exit_code == 1 and "The memory would read nothing" in text and "complete" in text


def test_a_signal_ends_the_search_and_leaves_its_run_to_be_gone_on_with(tmp_path: Path) -> None:
    def height(config: Config) -> float:
        raise SystemExit(128 + signal.SIGTERM)

    search = search_of(tmp_path / "study", SIZES, "search.trials=1")
    with pytest.raises(SystemExit, match="143"):
        run_search(search, Told(height), failed=1)
    text, exit_code = run_search(search, Told(lambda config: 2.0), failed=1)
    assert exit_code == 0 and "runs: 1 complete" in text


def test_a_fault_of_ours_ends_the_search(tmp_path: Path) -> None:
    def height(config: Config) -> float:
        raise ZeroDivisionError("a fault of ours")

    search = search_of(tmp_path / "study", SIZES, "search.trials=2")
    with pytest.raises(ZeroDivisionError):
        run_search(search, Told(height), failed=1)
    text, _ = run_search(search, Told(lambda config: 2.0), failed=1)
    assert "ZeroDivisionError: a fault of ours" in text


def test_hours_end_a_search_before_its_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 3599.0, 3600.0])
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    search = search_of(tmp_path / "study", SIZES, "search.hours=1")
    assert "2 complete" in run_search(search, Told(lambda config: 1.0), failed=1)[0]

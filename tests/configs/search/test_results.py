"""What a search came to is written best first, for people and programs, with the best as an experiment."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from configs import cli
from configs.search import command
from configs.search.command import SearchCommand
from configs.search.results import conclude, write_tables
from configs.search.study import StudiedRun

WORDS = (
    "env=Wind",
    "algorithm=choice(SAC,TD3)",
    "algorithm.learning_rate=interval(1e-4,1e-2)",
    "seed=3",
    "num_parallel_workers=1",
    "backend=serial",
    "wandb.mode=disabled",
    "train.n_env_steps_total=900",
    "evaluation.every=300",
    "env.num_eval_tasks=3",
)


def run(number: int, state: str, objective: float | None, rate: float, curve: float = math.nan) -> StudiedRun:
    values = {"algorithm": "TD3", "algorithm.learning_rate": rate}
    return StudiedRun(str(number), state, values, objective, {} if math.isnan(curve) else {1: curve})


RUNS = [
    run(0, "complete", 1.0, 0.001),
    run(1, "failed", None, 0.002),
    run(2, "complete", 3.0, 0.0030000000000000001, 3.0),
    run(3, "pruned", None, 0.004, 9.0),
    run(4, "pruned", None, 0.005),
]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchCommand:
    monkeypatch.setattr(command, "check_optuna", lambda: None)
    found = cli.read([f"search={tmp_path}", *WORDS]).search
    assert found is not None
    return found


def test_runs_stand_in_the_order_of_what_they_came_to(search: SearchCommand) -> None:
    assert [one.name for one in write_tables(search, RUNS)] == ["2", "0", "3", "4", "1"]
    rows = (search.folder / "search.csv").read_text().splitlines()
    assert rows[0] == "run,state,return,algorithm,algorithm.learning_rate"
    assert rows[1:4] == ["2,complete,3.0,TD3,0.003", "0,complete,1.0,TD3,0.001", "3,pruned,9.0,TD3,0.004"]
    assert "| 2 | complete | 3 | TD3 | 0.003 |" in (search.folder / "search.md").read_text()


def test_the_best_settings_are_an_experiment_without_seed_and_machine(search: SearchCommand) -> None:
    write_tables(search, RUNS)
    text = (search.folder / "experiment" / "best.yaml").read_text()
    assert text.startswith("# @package _global_\n# The best of ")
    assert "(seed 3)" in text
    assert yaml.safe_load(text) == {
        "defaults": [{"override /env": "Wind"}, {"override /algorithm": "TD3"}],
        "train": {"n_env_steps_total": 900},
        "evaluation": {"every": 300},
        "env": {"num_eval_tasks": 3},
        "algorithm": {"learning_rate": 0.003},
    }


def test_the_end_says_how_to_confirm_the_best_and_what_has_failed(search: SearchCommand) -> None:
    text = conclude(search, RUNS)
    assert "runs: 2 complete, 2 pruned, 1 failed" in text
    assert f"python main.py -m --config-dir {search.folder} experiment=best seed=1,2,3" in text
    assert f"failed       {search.folder / '1'}" in text
    assert (search.folder / "search.svg").stat().st_size > 100


def test_without_a_complete_run_there_is_no_best(search: SearchCommand) -> None:
    text = conclude(search, RUNS[3:])
    assert "experiment" not in text and "runs: 2 pruned" in text
    assert sorted(path.name for path in search.folder.iterdir()) == ["search.csv", "search.md"]

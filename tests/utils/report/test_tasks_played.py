"""The picture of the tasks that were played: shares by stretch of training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from utils.logger import METRICS, STEP_KEY
from utils.report.tasks_played import draw_tasks_played, shares_over_training


def lines_of(*waves: tuple[int, list[int]]) -> list[dict[str, object]]:
    return [{STEP_KEY: env_steps, "curriculum/trials": trials} for env_steps, trials in waves]


def test_shares_are_those_of_the_trials_in_each_stretch() -> None:
    shares = shares_over_training(lines_of((100, [4, 0]), (200, [1, 3])), 2)
    assert shares.tolist() == [[1.0, 0.0], [0.25, 0.75]]


def test_long_runs_are_drawn_in_stretches_that_lose_no_trial() -> None:
    waves = [(10 * number, [1, number % 2]) for number in range(1, 601)]
    shares = shares_over_training(lines_of(*waves), 2)
    assert shares.shape == (60, 2)
    assert np.allclose(shares[:, 1], 1 / 3)


def test_lines_without_the_metric_or_of_other_groups_are_left_out() -> None:
    lines = [{STEP_KEY: 5}, *lines_of((10, [1, 1, 1]), (20, [2, 2]))]
    assert shares_over_training(lines, 2).tolist() == [[0.5, 0.5]]


def test_a_picture_is_drawn_where_there_is_something_to_see(tmp_path: Path) -> None:
    assert draw_tasks_played(tmp_path, ["only"], "Mixture") is None
    metrics = tmp_path / METRICS
    metrics.write_text('{"env_steps": 3}\n')
    assert draw_tasks_played(tmp_path, ["easy", "hard"], "Mixture") is None
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines_of((100, [4, 0]), (200, [1, 3]))))
    picture = draw_tasks_played(tmp_path, ["easy", "hard"], "Mixture")
    assert picture is not None and picture.name == "tasks_played.png"
    assert picture.read_bytes().startswith(b"\x89PNG")

"""The picture of a run."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from utils.report import adaptation
from utils.report.adaptation import draw_adaptation

STEPS = [0, 50_000, 100_000]
RETURNS = [[1.0, 1.5, 1.0], [2.0, 4.0, 4.1], [2.0, 7.0, 7.1]]


@pytest.fixture(scope="module", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps the files of the fonts it has used open; these are not the tests' to account for."""
    draw_adaptation(tmp_path_factory.mktemp("fonts") / "a.png", STEPS, RETURNS, title="bold")


def names_of(panel: Any) -> dict[str, float]:
    """The names at the ends of the lines, and how high they stand."""
    return {text.get_text(): text.xy[1] for text in panel.texts}


def test_the_picture_is_written_whole(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    levels = {"oracle": 9.0, "random": 0.5}
    draw_adaptation(tmp_path / "a.png", STEPS, RETURNS, levels=levels, tasks="held-out", title="Wind")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_each_of_few_episodes_is_a_line_over_training_with_its_name() -> None:
    (panel,) = adaptation._figure(STEPS, RETURNS, {"oracle": 9.0}, "held-out", "Wind").axes
    assert (panel.get_title(loc="left"), panel.get_xlabel()) == ("held-out", "env steps")
    dashed, *solid = panel.get_lines()
    assert np.asarray(dashed.get_ydata()).tolist() == [9.0, 9.0]
    assert np.array_equal([np.asarray(line.get_ydata()) for line in solid], np.transpose(RETURNS))
    assert {tuple(np.asarray(line.get_xdata()).tolist()) for line in solid} == {tuple(STEPS)}
    names = names_of(panel)
    assert set(names) == {"oracle", "episode 1", "episode 2", "episode 3"}
    low, high = panel.get_ylim()
    assert min(b - a for a, b in pairwise(sorted(names.values()))) >= 0.06 * (high - low)
    assert names["episode 2"] < names["episode 3"] < names["oracle"]


def test_many_episodes_are_the_axis_and_evaluations_the_lines() -> None:
    """Nine evaluations of trials of 50 episodes: six of them, the first and the last included."""
    steps = [100_000 * number for number in range(9)]
    returns = [[number + episode / 50 for episode in range(50)] for number in range(9)]
    (panel,) = adaptation._figure(steps, returns, {}, "held-out", "Bandit").axes
    assert panel.get_xlabel() == "episode of the trial"
    lines = panel.get_lines()
    assert [np.asarray(line.get_xdata()).tolist() for line in lines] == [list(range(1, 51))] * 6
    drawn = [np.asarray(line.get_ydata()).tolist() for line in lines]
    assert (drawn[0], drawn[-1]) == (returns[0], returns[-1])
    named = [f"{steps} env steps" for steps in ("0", "200k", "300k", "500k", "600k", "800k")]
    assert list(names_of(panel)) == named


def test_the_only_episode_of_a_trial_is_called_so() -> None:
    (panel,) = adaptation._figure(STEPS, [[1.0], [2.0], [3.0]], {}, "held-out", "Corridor").axes
    assert set(names_of(panel)) == {"only episode"} and panel.get_xlabel() == "env steps"


@pytest.mark.parametrize(
    ("env_steps", "returns"),
    [
        ([0], [[1.0, 2.0]]),
        (STEPS, [[math.nan, 1.0], [1.0], [2.0, math.inf]]),
        ([0], [[1.0] * 30]),
        (STEPS, [[1.0] * 30, [math.nan] * 30, [2.0] * 7]),
    ],
    ids=["one point", "gaps", "many episodes once", "many episodes with gaps"],
)
def test_odd_runs_are_drawn_too(tmp_path: Path, env_steps: list[int], returns: list[list[float]]) -> None:
    draw_adaptation(tmp_path / "a.png", env_steps, returns, levels={"oracle": math.nan})
    assert (tmp_path / "a.png").stat().st_size > 1000

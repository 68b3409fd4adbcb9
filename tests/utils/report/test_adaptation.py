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
    draw_adaptation(tmp_path_factory.mktemp("fonts") / "a.png", curves={"a": (STEPS, RETURNS)}, title="bold")


def test_the_picture_is_written_whole(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    draw_adaptation(
        tmp_path / "a.png",
        curves={"held-out tasks": (STEPS, RETURNS)},
        levels={"oracle": 9.0, "random": 0.5},
        title="Wind",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_every_line_is_there_with_its_name() -> None:
    curves = {
        "held-out tasks": (STEPS, RETURNS),
        "training tasks": (STEPS, [[value + 1 for value in row] for row in RETURNS]),
    }
    figure = adaptation._figure(curves, {"oracle": 9.0}, "Wind")
    assert [panel.get_title(loc="left") for panel in figure.axes] == list(curves)
    panel = figure.axes[0]
    dashed, *solid = panel.get_lines()
    assert np.asarray(dashed.get_ydata()).tolist() == [9.0, 9.0]
    assert np.array_equal([np.asarray(line.get_ydata()) for line in solid], np.transpose(RETURNS))
    texts: list[Any] = list(panel.texts)
    names = {text.get_text(): text.xy[1] for text in texts}
    assert set(names) == {"oracle", "episode 1", "episode 2", "episode 3"}
    low, high = panel.get_ylim()
    heights = sorted(names.values())
    assert min(b - a for a, b in pairwise(heights)) >= 0.06 * (high - low)
    assert names["episode 2"] < names["episode 3"] < names["oracle"]


@pytest.mark.parametrize(
    "curve",
    [
        ([], []),
        ([0], [[1.0, 2.0]]),
        (STEPS, [[math.nan, 1.0], [1.0], [2.0, math.inf]]),
        (STEPS, [[1.0] * 30] * 3),
    ],
    ids=["none", "one point", "gaps", "many episodes"],
)
def test_odd_runs_are_drawn_too(tmp_path: Path, curve: tuple[list[int], list[list[float]]]) -> None:
    draw_adaptation(tmp_path / "a.png", curves={"held-out tasks": curve}, levels={"oracle": math.nan})
    assert (tmp_path / "a.png").stat().st_size > 1000

"""The picture of a search has a panel for every option, and every run in it."""

from __future__ import annotations

import math
import re
from pathlib import Path

from utils.report.searched import Axis, draw_searched


def test_every_option_has_a_panel_and_every_run_a_mark(tmp_path: Path) -> None:
    axes = [
        Axis("algorithm.learning_rate", [1e-4, 1e-3, 1e-2], log=True),
        Axis("algorithm", [0, 1, math.nan], names=("SAC", "TD3")),
        Axis("train.replay_ratio", [1.0, 2.0, 3.0]),
        Axis("memory.hidden_size", [16, 32, 64]),
    ]
    returns, complete = [1.0, 3.0, math.nan], [True, True, False]
    files = draw_searched(tmp_path / "search", axes, returns, complete, "last_episode")
    assert [path.name for path in files] == ["search.png", "search.svg"]
    text = files[1].read_text()
    for words in (*(axis.name for axis in axes), "SAC", "TD3", "return, last episode"):
        assert f">{words}<" in text
    # Two complete runs in each of four panels; a run without a return has no mark.
    marks = re.findall(r"<use (?:xlink:)?href=\"#\w+\" x=\"[\d.]+\" y=\"[\d.]+\" style=\"fill", text)
    assert len(marks) == 4 * 2


def test_the_labels_of_a_logarithmic_axis_are_few_and_plain(tmp_path: Path) -> None:
    for places, labels in (([4e-4, 5e-3], ["0.001", "0.003"]), ([1e-6, 1e-1], ["0.0001", "0.01"])):
        axis = Axis("rate", places, log=True)
        _, svg = draw_searched(tmp_path / "search", [axis], [1.0, 2.0], [True, True], "trial")
        shown = re.findall(r">([\d.e-]+)</text>", svg.read_text().partition(">rate<")[0])
        assert set(labels) <= set(shown) and len(shown) <= 8, shown


def test_nothing_complete_is_drawn_without_a_best_run(tmp_path: Path) -> None:
    draw_searched(tmp_path / "search", [Axis("seed", [1.0])], [2.0], [False], "trial")
    assert (tmp_path / "search.png").stat().st_size > 100

"""Figures look the same whatever a user's own matplotlib is set to, and leave that as it was."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb

from utils.report import style
from utils.report.comparison import MOST_COMPARED
from utils.report.style import drawing, looks_of, wrapped_label


def test_every_setting_that_is_compared_has_a_look_of_its_own() -> None:
    looks = looks_of([str(number) for number in range(MOST_COMPARED)])
    assert len(looks) == MOST_COMPARED
    for part in ("colour", "dashes", "mark"):
        assert len({getattr(look, part) for look in looks.values()}) == MOST_COMPARED
    # Nothing too light for white paper.
    assert all(
        0.3 * r + 0.59 * g + 0.11 * b < 0.75 for r, g, b in (to_rgb(one.colour) for one in looks.values())
    )


def test_drawing_uses_our_settings_alone_and_restores_the_users() -> None:
    before = mpl.rcParams["font.size"]
    mpl.rcParams["font.size"], mpl.rcParams["lines.linewidth"] = 31, 17
    try:
        with drawing():
            assert (mpl.rcParams["font.size"], mpl.rcParams["svg.hashsalt"]) == (9, "retrial")
        assert (mpl.rcParams["font.size"], mpl.rcParams["lines.linewidth"]) == (31, 17)
    finally:
        mpl.rcdefaults()
        mpl.rcParams["font.size"] = before


def test_a_long_name_is_wrapped_at_its_spaces() -> None:
    name = "agent=Memory_Markov algorithm.learning_rate=0.0003 env.circle_radius=2"
    assert wrapped_label(name).splitlines() == [
        "agent=Memory_Markov",
        "algorithm.learning_rate=0.0003",
        "env.circle_radius=2",
    ]


def test_names_are_moved_only_where_they_would_overlap() -> None:
    assert style._spread([0.0, 5.0, 5.1, 20.0], 1.0) == pytest.approx([0.0, 4.55, 5.55, 20.0])
    assert style._spread([1.0, 1.0, 1.0, 2.5], 1.0) == pytest.approx([-0.125, 0.875, 1.875, 2.875])
    assert style._spread([], 1.0) == []

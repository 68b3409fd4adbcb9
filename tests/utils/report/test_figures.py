"""The figures of a report show the numbers of its tables, for one episode and for fifty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Annotation

from tests.utils.report.made_runs import make_run
from utils.report.comparison import Comparison, compare
from utils.report.figures import (
    adaptation_figure,
    draw_figures,
    improvement_figure,
    learning_figure,
    profile_figure,
)
from utils.report.scores import learning_band
from utils.report.style import drawing, looks_of


def swept(
    folder: Path, *, algorithms: int = 2, seeds: int = 3, episodes: int = 2, **changes: Any
) -> Comparison:
    rng = np.random.default_rng(0)
    for name in range(algorithms):
        for seed in range(seeds):
            table = (rng.normal(size=(3, 4, episodes)) + name).tolist()
            chosen = {"algorithm__name": f"A{name}", "seed": seed, **changes}
            make_run(folder / f"{name}-{seed}", table, **chosen)
    return compare([folder])


@pytest.fixture(scope="module", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib keeps the files of the fonts it has used open; these are not the tests' to account for."""
    draw_figures(swept(tmp_path_factory.mktemp("fonts") / "runs"), tmp_path_factory.mktemp("drawn"))


def test_four_figures_are_written_as_png_and_svg_and_equal_ones_are_equal_files(tmp_path: Path) -> None:
    comparison = swept(tmp_path / "runs")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        drawn = draw_figures(comparison, tmp_path / name)
        stems = ["learning", "adaptation", "profiles", "improvement"]
        assert [path.stem for _, path in drawn] == stems
        written = sorted(path.name for path in (tmp_path / name).iterdir())
        assert written == sorted(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()


def test_a_figure_of_an_earlier_report_goes_where_there_is_nothing_to_draw(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("improvement.png", "improvement.svg", "mine.png"):
        (tmp_path / "out" / name).write_text("older")
    drawn = draw_figures(swept(tmp_path / "runs", algorithms=1), tmp_path / "out")
    assert [path.stem for _, path in drawn] == ["learning", "adaptation", "profiles"]
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert "mine.png" in left and not left & {"improvement.png", "improvement.svg"}


def test_learning_curves_are_over_env_steps_and_minutes_with_names_and_units(tmp_path: Path) -> None:
    comparison = swept(tmp_path)
    with drawing():
        figure = learning_figure(comparison, looks_of(comparison.best))
    steps, minutes = figure.axes
    assert (steps.get_xlabel(), minutes.get_xlabel()) == ("env steps", "minutes")
    assert steps.get_ylabel() == "return per trial" and steps.get_title(loc="left") == "PointRobot"
    for line, setting in zip(steps.get_lines(), comparison.settings, strict=True):
        places, mean, _, _ = learning_band(setting, "env_steps")
        assert np.array_equal(np.asarray(line.get_xdata()), places)
        assert np.array_equal(np.asarray(line.get_ydata()), mean)
    assert np.asarray(minutes.get_lines()[0].get_xdata())[-1] == 0.5
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "algorithm=A0 (3 seeds)",
        "algorithm=A1 (3 seeds)",
    ]
    # Told apart without colours, too.
    assert len({str(line.get_marker()) for line in steps.get_lines()}) == 2


def test_two_seeds_are_drawn_each_and_one_alone(tmp_path: Path) -> None:
    with drawing():
        for seeds, lines in ((1, 1), (2, 3)):
            comparison = swept(tmp_path / str(seeds), algorithms=1, seeds=seeds)
            panel = learning_figure(comparison, looks_of(comparison.best)).axes[0]
            assert len(panel.get_lines()) == lines and not panel.collections


@pytest.mark.parametrize("episodes", [1, 2, 50])
def test_adaptation_shows_the_last_return_of_every_episode(tmp_path: Path, episodes: int) -> None:
    comparison = swept(tmp_path, episodes=episodes)
    with drawing():
        figure = adaptation_figure(comparison, looks_of(comparison.best))
    (panel,) = figure.axes
    expected = [
        [comparison.intervals(setting)[f"episode_{index + 1}"].mean for index in range(episodes)]
        for setting in comparison.settings
    ]
    bars = [one for one in panel.containers if isinstance(one, ErrorbarContainer)]
    lines = [one.lines[0] for one in bars] or panel.get_lines()
    assert [np.asarray(line.get_ydata()).tolist() for line in lines] == expected
    # A single episode is a place for each setting, few are marks with intervals, many a line with a band.
    assert bool(bars) == (episodes < 50) and len(panel.collections) == 2
    assert panel.get_xlabel() == ("episode of the trial" if episodes > 1 else "the only episode of a trial")


def test_a_profile_falls_from_all_to_none(tmp_path: Path) -> None:
    comparison = swept(tmp_path)
    with drawing():
        figure = profile_figure(comparison, looks_of(comparison.best))
    assert figure is not None
    for line in figure.axes[0].get_lines():
        share = np.asarray(line.get_ydata(), float)
        assert (share[0], share[-1]) == (1, 0) and (np.diff(share) <= 0).all()


def test_of_many_settings_the_best_is_drawn_over_each_other_one(tmp_path: Path) -> None:
    comparison = swept(tmp_path, algorithms=5)
    with drawing():
        figure = improvement_figure(comparison)
    assert figure is not None
    (panel,) = figure.axes
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == [f"algorithm=A4\nover algorithm=A{number}" for number in range(4)]
    bars = [one for one in panel.containers if isinstance(one, ErrorbarContainer)]
    means = [float(np.ravel(one.lines[0].get_xdata())[0]) for one in bars]
    known = {(x, y): one.mean for x, y, one in comparison.improvements}
    assert means == pytest.approx([1 - known[f"algorithm=A{one}", "algorithm=A4"] for one in range(4)])


def test_one_setting_has_nothing_to_win_and_no_legend(tmp_path: Path) -> None:
    comparison = swept(tmp_path, algorithms=1)
    with drawing():
        assert improvement_figure(comparison) is None
        assert not learning_figure(comparison, looks_of(comparison.best)).legends


def test_a_figure_of_the_best_says_how_many_it_leaves_out(tmp_path: Path) -> None:
    comparison = swept(tmp_path, algorithms=10, seeds=1)
    with drawing():
        figure = learning_figure(comparison, looks_of(comparison.best))
    assert figure.get_suptitle() == "The best 8 of 10 settings"
    # The legend grows below the panels, which keep their size.
    assert figure.get_figheight() > 2.6 + 0.2 * 2


@pytest.mark.parametrize("episodes", [1, 2])
def test_what_an_oracle_and_random_actions_return_is_a_named_line(tmp_path: Path, episodes: int) -> None:
    comparison = swept(tmp_path, episodes=episodes, levels={"oracle": 15.4, "random": -3.0})
    looks = looks_of(comparison.best)
    with drawing():
        figures = {learning_figure(comparison, looks): episodes, adaptation_figure(comparison, looks): 1}
    for figure, scale in figures.items():
        named = {"oracle": 15.4 * scale, "random": -3.0 * scale}
        for panel in figure.axes:
            heights = [np.unique(np.asarray(line.get_ydata())).tolist() for line in panel.get_lines()]
            assert all([height] in heights for height in named.values())
        texts = [text for text in figure.axes[-1].texts if isinstance(text, Annotation)]
        assert {text.get_text(): text.xy[1] for text in texts} == pytest.approx(named)

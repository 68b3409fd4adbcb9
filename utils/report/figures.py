"""The figures of a report: learning curves, adaptation over the episodes of a trial, and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from utils.report.comparison import Comparison, profiles
from utils.report.scores import episode_name, episodes_of, learning_band
from utils.report.settings import RunSetting
from utils.report.style import (
    QUIET,
    Look,
    add_legend,
    draw_levels,
    drawing,
    looks_of,
    name_ends,
    new_figure,
    save_figure,
    steps_axis,
    wrapped_label,
)
from utils.statistics import FEWEST, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_WIDTH, _PANEL_HEIGHT = 3.4, 2.6
# Of more episodes than this a line with a band is drawn, of fewer a mark with its interval for each.
_MOST_MARKED = 12
# Of more pairs of settings than this only those of the best setting are drawn.
_MOST_PAIRS = 6


def draw_figures(comparison: Comparison, folder: Path) -> list[tuple[str, Path]]:
    """Draw what there is to draw into a folder; returns (title, PNG), and an SVG stands beside each.

    A figure that an earlier report has drawn there, and this one has not, goes: its numbers are not these.
    """
    drawn: list[tuple[str, Path]] = []
    with drawing():
        for name, title, figure in _figures(comparison):
            if figure is not None:
                drawn.append((title, save_figure(figure, folder / name)[0]))
            else:
                for kind in ("png", "svg"):
                    (folder / f"{name}.{kind}").unlink(missing_ok=True)
    return drawn


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, Figure | None]]:
    """(name, title, figure), without a figure where there is nothing to draw."""
    looks = looks_of(comparison.best)
    yield "learning", "Learning curves", learning_figure(comparison, looks)
    title = "Return by episode of a trial, at the last evaluation"
    yield "adaptation", title, adaptation_figure(comparison, looks)
    yield "profiles", "Performance profiles", profile_figure(comparison, looks)
    yield "improvement", "Probability of improvement", improvement_figure(comparison)


def _names(comparison: Comparison, looks: Mapping[str, Look]) -> dict[str, str]:
    """The text of each setting in the legend: its label, and from how many seeds it is."""
    names: dict[str, str] = {}
    for label in looks:
        counts = sorted({len(setting.counted) for setting in comparison.of(label)})
        seeds = " or ".join(map(str, counts))
        word = "seed" if counts == [1] else "seeds"
        names[label] = f"{label} ({seeds} {word})"
    return names


def _grid(comparison: Comparison, columns: int) -> tuple[Figure, np.ndarray]:
    rows = len(comparison.rooms)
    figure = new_figure(_PANEL_WIDTH * columns, _PANEL_HEIGHT * rows)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _finish(figure: Figure, comparison: Comparison, looks: Mapping[str, Look]) -> Figure:
    """The legend, and a word on the settings that are not drawn."""
    add_legend(figure, looks, _names(comparison, looks))
    left_out = len({setting.label for setting in comparison.settings}) - len(looks)
    if left_out > 0:
        figure.suptitle(
            f"The best {len(looks)} of {len(looks) + left_out} settings", fontsize=9, x=0.02, ha="left"
        )
    return figure


def _name_levels(panel: Axes, levels: Mapping[str, float]) -> None:
    name_ends(panel, [(level, name.replace(", ", ",\n"), QUIET) for name, level in levels.items()], gap=0.1)


# -- learning curves -----------------------------------------------------------------------------------------


def learning_figure(comparison: Comparison, looks: Mapping[str, Look]) -> Figure:
    """The return per trial over env steps and over minutes, one row of panels for each environment."""
    figure, panels = _grid(comparison, 2)
    for row, (environment, room) in zip(panels, comparison.rooms.items(), strict=True):
        row[1].sharey(row[0])
        for panel, axis in zip(row, ("env_steps", "seconds"), strict=True):
            for setting in room:
                if setting.label in looks:
                    _draw_curve(panel, setting, axis, looks[setting.label])
            panel.margins(x=0.02)
            panel.set_xlim(left=0)
            draw_levels(panel, comparison.trial_levels(environment))
        steps_axis(row[0])
        row[1].set_xlabel("minutes")
        row[0].set_ylabel("return per trial")
        row[0].set_title(environment)
        _name_levels(row[1], comparison.trial_levels(environment))
    return _finish(figure, comparison, looks)


def _draw_curve(panel: Axes, setting: RunSetting, axis: str, look: Look) -> None:
    places, mean, low, high = learning_band(setting, axis)
    scale = 60 if axis == "seconds" else 1
    every = max(1, len(places) // 8)
    panel.plot(
        places / scale,
        mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.mark,
        markersize=3.5,
        markevery=(every // 2, every),
    )
    if len(setting.counted) >= FEWEST and places[0] < places[-1]:
        panel.fill_between(places / scale, low, high, color=look.colour, alpha=0.18, linewidth=0)
        return
    # Two seeds have no interval, and runs at other speeds maybe no common minutes: each is drawn, thin.
    for run in setting.counted[: len(setting.counted) * (len(setting.counted) > 1)]:
        own = [getattr(one, axis) / scale for one in run.evaluations]
        panel.plot(own, [one.trial_return for one in run.evaluations], color=look.colour, linewidth=0.6)


# -- adaptation ----------------------------------------------------------------------------------------------


def adaptation_figure(comparison: Comparison, looks: Mapping[str, Look]) -> Figure:
    """The return of each episode of a trial at the last evaluation, one panel for each environment."""
    rows = len(comparison.rooms)
    figure = new_figure(_PANEL_WIDTH * 1.3, _PANEL_HEIGHT * rows)
    panels = figure.subplots(rows, 1, squeeze=False)[:, 0]
    for panel, (environment, room) in zip(panels, comparison.rooms.items(), strict=True):
        drawn = [setting for setting in room if setting.label in looks]
        if max(map(episodes_of, drawn), default=1) == 1:
            _draw_single_episodes(panel, comparison, drawn, looks)
        else:
            _draw_episodes(panel, comparison, drawn, looks)
        panel.set_ylabel("return of the episode")
        panel.set_title(environment)
        draw_levels(panel, comparison.levels(environment))
        _name_levels(panel, comparison.levels(environment))
    return _finish(figure, comparison, looks)


def _draw_single_episodes(
    panel: Axes, comparison: Comparison, room: Sequence[RunSetting], looks: Mapping[str, Look]
) -> None:
    """Trials of one episode have nothing to adapt between: the settings stand beside each other."""
    for place, setting in enumerate(room):
        value = comparison.intervals(setting)[episode_name(0)]
        _draw_marks(panel, [place], [value], looks[setting.label], "none")
    panel.set_xticks([])
    panel.set_xlim(-0.6, len(room) - 0.4)
    panel.set_xlabel("the only episode of a trial")


def _draw_episodes(
    panel: Axes, comparison: Comparison, room: Sequence[RunSetting], looks: Mapping[str, Look]
) -> None:
    from matplotlib.ticker import MaxNLocator

    for index, setting in enumerate(room):
        intervals = comparison.intervals(setting)
        count = episodes_of(setting)
        values = [intervals[episode_name(episode)] for episode in range(count)]
        look = looks[setting.label]
        if count > _MOST_MARKED:
            _draw_band(panel, values, look)
            continue
        # A little beside each other, so that no interval hides another.
        aside = 0.06 * (index - (len(room) - 1) / 2)
        places = [episode + 1 + aside for episode in range(count)]
        _draw_marks(panel, places, values, look, look.line)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1, steps=[1, 2, 5, 10]))
    panel.set_xlabel("episode of the trial")


def _draw_marks(
    panel: Axes, places: Sequence[float], values: Sequence[Interval], look: Look, line: object
) -> None:
    panel.errorbar(
        places,
        [one.mean for one in values],
        yerr=_errors(values),
        color=look.colour,
        linestyle=line,
        marker=look.mark,
        markersize=4.5,
        capsize=2.5,
        elinewidth=1.1,
    )


def _draw_band(panel: Axes, values: Sequence[Interval], look: Look) -> None:
    places = np.arange(1, len(values) + 1)
    mean = np.array([one.mean for one in values])
    below, above = _errors(values)
    panel.plot(
        places,
        mean,
        color=look.colour,
        linestyle=look.line,
        marker=look.mark,
        markersize=3.5,
        markevery=max(1, len(values) // 8),
    )
    panel.fill_between(places, mean - below, mean + above, color=look.colour, alpha=0.18, linewidth=0)


def _errors(values: Sequence[Interval]) -> np.ndarray:
    """[2, values] how far the bounds are from the means; 0 where there is no interval."""
    bounds = [
        (0.0, 0.0) if one.low is None or one.high is None else (one.mean - one.low, one.high - one.mean)
        for one in values
    ]
    # A percentile bootstrap may end on the wrong side of its mean by a rounding.
    return np.maximum(np.array(bounds, float).T, 0.0)


# -- comparisons ---------------------------------------------------------------------------------------------


def profile_figure(comparison: Comparison, looks: Mapping[str, Look]) -> Figure | None:
    """The share of scores above each threshold; a higher curve is a better setting."""
    found = profiles(comparison)
    if found is None:
        return None
    figure = new_figure(_PANEL_WIDTH * 1.3, _PANEL_HEIGHT)
    panel = figure.subplots()
    drawn = {label: looks[label] for label in found.curves if label in looks}
    for label, look in drawn.items():
        share, low, high = found.curves[label]
        every = max(1, len(share) // 8)
        panel.plot(
            found.thresholds,
            share,
            color=look.colour,
            linestyle=look.line,
            marker=look.mark,
            markersize=3.5,
            markevery=(every // 2, every),
        )
        panel.fill_between(found.thresholds, low, high, color=look.colour, alpha=0.18, linewidth=0)
    panel.set_ylim(-0.02, 1.02)
    panel.margins(x=0.0)
    panel.set_ylabel("share of runs and tasks above τ")
    panel.set_xlabel("return of a task's trial, τ")
    if found.normalised:
        panel.set_ylabel("share of runs above τ")
        panel.set_xlabel("return per trial τ, scaled in each environment")
    return _finish(figure, comparison, drawn)


def improvement_figure(comparison: Comparison) -> Figure | None:
    """The probability that a run of one setting beats a run of another; of many, of the best over each."""
    pairs = comparison.improvements
    if len(pairs) > _MOST_PAIRS:
        pairs = _of_the_best(pairs)
    if not pairs:
        return None
    figure = new_figure(_PANEL_WIDTH * 1.8, 0.42 * len(pairs) + 0.9)
    panel = figure.subplots()
    for place, (_, _, interval) in enumerate(pairs):
        (below,), (above,) = _errors([interval])
        panel.errorbar(
            [interval.mean],
            [place],
            xerr=[[below], [above]],
            color="black",
            marker="o",
            markersize=4.5,
            capsize=2.5,
        )
    panel.axvline(0.5, color="#7a7a7a", linewidth=1, linestyle=(0, (5, 4)), zorder=1)
    panel.set_yticks(range(len(pairs)), [f"{wrapped_label(x)}\nover {wrapped_label(y)}" for x, y, _ in pairs])
    panel.set_ylim(len(pairs) - 0.5, -0.5)
    panel.set_xlim(-0.02, 1.02)
    panel.set_xlabel("probability of a higher return per trial")
    return figure


def _of_the_best(pairs: Sequence[tuple[str, str, Interval]]) -> list[tuple[str, str, Interval]]:
    """The pairs of the setting that wins most often, with it in the first place."""
    wins: dict[str, float] = {}
    for x, y, interval in pairs:
        wins[x] = wins.get(x, 0.0) + interval.mean
        wins[y] = wins.get(y, 0.0) + 1 - interval.mean
    best = max(wins, key=lambda label: wins[label])
    kept: list[tuple[str, str, Interval]] = []
    for x, y, interval in pairs:
        if x == best:
            kept.append((x, y, interval))
        elif y == best:
            kept.append((y, x, _turned(interval)))
    return kept


def _turned(interval: Interval) -> Interval:
    """The probability that Y beats X, of the one that X beats Y."""
    if interval.low is None or interval.high is None:
        return Interval(1 - interval.mean)
    return Interval(1 - interval.mean, 1 - interval.high, 1 - interval.low)

"""One picture of a run: how well each episode of a trial goes, as training goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from utils.disk.own_files import replacing
from utils.report.style import QUIET, Label, draw_levels, name_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIRST, _LAST = (0.55, 0.71, 0.90), (0.05, 0.20, 0.45)  # light to dark blue: what is later is darker
_INK = "#222222"
# So many lines can be told apart by their shade, and named at their ends.
_MOST_LINES = 6
# Dots run into each other on a line of more points.
_MOST_DOTS = 40


class _Line(NamedTuple):
    places: Sequence[int]
    returns: Sequence[float]
    name: str


def draw_adaptation(
    path: Path,
    env_steps: Sequence[int],
    returns: Sequence[Sequence[float]],
    *,
    levels: Mapping[str, float] | None = None,
    tasks: str = "",
    title: str = "",
) -> None:
    """Draw the returns [evaluation][episode] of a run, which was evaluated after so many env steps.

    Of few episodes each is a line over training; of many, some evaluations are lines over the episodes.
    `levels` are dashed lines with their names, and `tasks` is the name of the list that was played.
    """
    figure = _figure(env_steps, returns, levels or {}, tasks, title)
    with replacing(path) as file:  # a viewer that has the picture open never sees half of one
        figure.savefig(file, format="png")


def _figure(
    env_steps: Sequence[int],
    returns: Sequence[Sequence[float]],
    levels: Mapping[str, float],
    tasks: str,
    title: str,
) -> Figure:
    # Imported here, since it takes half a second, and a run should not start with that.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    episodes = max(map(len, returns))
    if episodes <= _MOST_LINES:
        lines = _over_training(env_steps, returns, episodes)
        _training_axis(panel, env_steps)
    else:
        lines = _over_episodes(env_steps, returns)
        _episode_axis(panel, episodes)
    _draw(panel, lines, levels)
    panel.set_title(tasks, fontsize=10, color=_INK, loc="left")
    figure.suptitle(title, fontsize=12, color=_INK, fontweight="bold", x=0.01, ha="left")
    return figure


# -- what is drawn -------------------------------------------------------------------------------------------


def _over_training(
    env_steps: Sequence[int], returns: Sequence[Sequence[float]], episodes: int
) -> list[_Line]:
    """A line for each episode of the trial."""
    lines: list[_Line] = []
    for episode in range(episodes):
        column = [row[episode] if episode < len(row) else math.nan for row in returns]
        # A trial of one episode adapts within it, and this is a curve of learning.
        name = f"episode {episode + 1}" if episodes > 1 else "only episode"
        lines.append(_Line(env_steps, column, name))
    return lines


def _over_episodes(env_steps: Sequence[int], returns: Sequence[Sequence[float]]) -> list[_Line]:
    """A line for each of some evaluations, the first and the last among them."""
    from matplotlib.ticker import EngFormatter

    steps = EngFormatter(sep="")
    shown = np.unique(np.linspace(0, len(returns) - 1, _MOST_LINES).round().astype(int)).tolist()
    return [
        _Line(range(1, len(returns[place]) + 1), returns[place], f"{steps(env_steps[place])} env steps")
        for place in shown
    ]


# -- how it is drawn -----------------------------------------------------------------------------------------


def _draw(panel: Axes, lines: Sequence[_Line], levels: Mapping[str, float]) -> None:
    # The levels of the oracle and of chance, behind everything else.
    draw_levels(panel, levels)
    colours = [_colour(place, len(lines)) for place in range(len(lines))]
    for order, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        panel.plot(
            line.places,
            line.returns,
            color=colour,
            linewidth=2,
            marker="o",
            markersize=3.5 if len(line.places) < _MOST_DOTS else 0,
            zorder=2 + order,
        )
    panel.set_ylabel("return of one episode", color=_INK)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_INK, labelsize=9)
    panel.margins(y=0.08)

    # Names at the ends of the lines instead of a legend.
    labels: list[Label] = [(level, name, QUIET) for name, level in levels.items()]
    for line, colour in zip(lines, colours, strict=True):
        finite = [value for value in line.returns if math.isfinite(value)]
        labels += [(value, line.name, colour) for value in finite[-1:]]
    name_ends(panel, labels, gap=0.062)


def _colour(place: int, count: int) -> tuple[float, ...]:
    part = place / (count - 1) if count > 1 else 1.0
    return tuple(first + part * (last - first) for first, last in zip(_FIRST, _LAST, strict=True))


def _training_axis(panel: Axes, env_steps: Sequence[int]) -> None:
    """From the first step to the last, with a little room at both ends."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    last = max(*env_steps, 1)
    panel.set_xlim(-0.02 * last, 1.02 * last)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    panel.set_xlabel("env steps", color=_INK)


def _episode_axis(panel: Axes, episodes: int) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_xlim(0.5, 1.02 * episodes)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10]))
    panel.set_xlabel("episode of the trial", color=_INK)

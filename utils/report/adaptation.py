"""One picture of a run: how well each episode of a trial goes, as training goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from utils.disk.own_files import replacing
from utils.report.style import QUIET, Label, draw_levels, name_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[Sequence[int], Sequence[Sequence[float]]]
_FIRST, _LAST = (0.55, 0.71, 0.90), (0.05, 0.20, 0.45)  # light to dark blue: later episodes are darker
_INK = "#222222"
_MAX_NAMED = 6


def draw_adaptation(
    path: Path,
    *,
    curves: Mapping[str, Curve],
    levels: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw the return of episodes 1..k over training, one panel for each name in `curves`.

    A curve is (env steps, [evaluation][episode] returns); `levels` are dashed lines with their names.
    """
    figure = _figure(curves, levels or {}, title)
    with replacing(path) as file:  # a viewer that has the picture open never sees half of one
        figure.savefig(file, format="png")


def _figure(curves: Mapping[str, Curve], levels: Mapping[str, float], title: str) -> Figure:
    # Imported here, since it takes half a second, and a run should not start with that.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = {name: curve for name, curve in curves.items() if len(curve[0])}
    figure = Figure(figsize=(1.2 + 5.6 * max(len(drawn), 1), 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, max(len(drawn), 1), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (name, (env_steps, returns)) in zip(panels, drawn.items(), strict=False):
        _draw_panel(panel, env_steps, returns, levels)
        panel.set_title(name, fontsize=10, color=_INK, loc="left")
    # After all panels are drawn: they share the axis that decides how far apart the names must be.
    for panel, (_, returns) in zip(panels, drawn.values(), strict=False):
        _label_ends(panel, returns, levels)
    panels[0].set_ylabel("return of one episode", color=_INK)
    if title:
        figure.suptitle(title, fontsize=12, color=_INK, fontweight="bold", x=0.01, ha="left")
    return figure


def _column(returns: Sequence[Sequence[float]], episode: int) -> list[float]:
    """The returns of one episode index over the evaluations; NaN where an evaluation had fewer episodes."""
    return [row[episode] if episode < len(row) else math.nan for row in returns]


def _color(episode: int, episodes: int) -> tuple[float, ...]:
    part = episode / (episodes - 1) if episodes > 1 else 1.0
    return tuple(first + part * (last - first) for first, last in zip(_FIRST, _LAST, strict=True))


def _draw_panel(
    panel: Axes,
    env_steps: Sequence[int],
    returns: Sequence[Sequence[float]],
    levels: Mapping[str, float],
) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    # The levels of the oracle and of chance, behind everything else.
    draw_levels(panel, levels)
    episodes = max(len(row) for row in returns)

    # One line for each episode of the trial; dots only where they do not run into each other.
    dot = 3.5 if len(returns) < 40 else 0
    for episode in range(episodes):
        panel.plot(
            env_steps,
            _column(returns, episode),
            color=_color(episode, episodes),
            linewidth=2,
            marker="o",
            markersize=dot,
            zorder=2 + episode,
        )

    # A quiet frame: the axis from the first step to the last, with a little room at both ends.
    panel.set_xlabel("env steps", color=_INK)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_INK, labelsize=9)
    panel.margins(y=0.08)
    last = max(*env_steps, 1)
    panel.set_xlim(-0.02 * last, 1.02 * last)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _label_ends(panel: Axes, returns: Sequence[Sequence[float]], levels: Mapping[str, float]) -> None:
    """Names at the ends of the lines instead of a legend; of many episodes only the first and the last."""
    episodes = max(len(row) for row in returns)
    labels: list[Label] = [(level, name, QUIET) for name, level in levels.items()]
    for episode in range(episodes):
        finite = [value for value in _column(returns, episode) if math.isfinite(value)]
        if finite and (episodes <= _MAX_NAMED or episode in (0, episodes - 1)):
            labels.append((finite[-1], f"episode {episode + 1}", _color(episode, episodes)))
    name_ends(panel, labels, gap=0.062)

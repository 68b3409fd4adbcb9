"""One picture of a memory: every number of its state over a trial, and how much they change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from utils.disk.own_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _QUIET = "#222222", "#7a7a7a"


def draw_states(path: Path, states: ArrayLike, *, starts: Sequence[int] = (0,), title: str = "") -> None:
    """Draw states [rows, numbers] as colours above the length of their change from row to row.

    `starts` are the rows in which episodes begin.
    """
    # Imported here, since it takes half a second, and only a few programs draw.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    values = np.asarray(states, np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"States must be [rows, numbers], and these are {list(values.shape)}.")
    figure = Figure(figsize=(7.0, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))

    # The same distance from 0 has the same strength of colour, on both sides.
    farthest = float(np.abs(values).max()) or 1.0
    shown = above.imshow(
        values.T, aspect="auto", interpolation="nearest", cmap="RdBu_r", vmin=-farthest, vmax=farthest
    )
    figure.colorbar(shown, ax=above, pad=0.01).ax.tick_params(labelsize=8)
    above.set_ylabel("number of the state", color=_INK)
    below.plot(changes(values), color=_INK, linewidth=1.2)
    below.set_ylabel("change", color=_INK)
    below.set_xlabel("row of the trial", color=_INK)
    below.set_ylim(bottom=0)
    for panel in (above, below):
        _mark_episodes(panel, starts)
    above.set_title(title, fontsize=11, color=_INK, fontweight="bold", loc="left")

    with replacing(path) as file:  # a viewer that has the picture open never sees half of one
        figure.savefig(file, format="png")


def changes(states: NDArray[Any]) -> NDArray[np.float64]:
    """[rows] the distance of each state from the one before; of the first from 0, the initial state."""
    before = np.concatenate([np.zeros_like(states[:1]), states[:-1]])
    return np.sqrt(np.square(states - before).sum(1))


def _mark_episodes(panel: Axes, starts: Sequence[int]) -> None:
    """A line before the first row of each episode but the first."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_INK, labelsize=9)
    for start in starts:
        if start > 0:
            panel.axvline(start - 0.5, color=_QUIET, linewidth=1.2, linestyle=(0, (5, 4)))

"""The picture of a search: what the runs returned against each setting that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from utils.report.style import QUIET, drawing, looks_of, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3
_WIDTH, _HEIGHT = 2.6, 2.3


@dataclass(frozen=True)
class Axis:
    """One option: where each run stands on it."""

    name: str
    # NaN where a run has no value.
    places: Sequence[float]
    log: bool = False
    # Of an option whose values are not numbers: the values, in the order of their places.
    names: Sequence[str] = ()


def draw_searched(
    stem: Path, axes: Sequence[Axis], returns: Sequence[float], complete: Sequence[bool], label: str
) -> list[Path]:
    """Draw a panel for each option, as PNG and SVG; returns the files.

    Runs that did not come to their end are hollow, at what they returned last, and the best run is marked.
    """
    heights, done = np.array(returns, float), np.array(complete, bool)
    best = int(np.nanargmax(np.where(done, heights, -np.inf))) if done.any() else None
    columns = min(_COLUMNS, len(axes))
    rows = -(-len(axes) // columns)
    (look,) = looks_of(["runs"]).values()
    with drawing():
        figure = new_figure(_WIDTH * columns, _HEIGHT * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, axis in zip(panels, axes, strict=False):
            places = np.array(axis.places, float)
            panel.scatter(places[~done], heights[~done], s=14, facecolors="none", edgecolors=QUIET)
            panel.scatter(places[done], heights[done], s=14, color=look.colour)
            if best is not None:
                panel.scatter(places[best], heights[best], s=70, facecolors="none", edgecolors="black")
            if axis.log:
                _scale_by_magnitude(panel)
            if axis.names:
                panel.set_xticks(range(len(axis.names)), labels=[str(name) for name in axis.names])
                panel.margins(x=0.2)
            panel.set_xlabel(axis.name)
        for panel in panels[len(axes) :]:
            panel.set_visible(False)
        for first in panels[::columns]:
            first.set_ylabel(f"return, {label.replace('_', ' ')}")
        return save_figure(figure, stem)


def _scale_by_magnitude(panel: Axes) -> None:
    """A logarithmic axis whose labels leave each other room, also where it spans a single decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # only who draws needs it

    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high < 300 * low else (1,)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())

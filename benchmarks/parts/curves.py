"""Curves of learning: when they reach a mark, what several seeds say together, and a picture.

Seeds are summed up by interquartile means with bootstrap intervals (Agarwal et al., arXiv:2108.13264).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from policies.evaluation.table import curves_of
from utils.statistics import FEWEST, iqm_band, iqm_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET = "#222222", "#7a7a7a"
COLOURS = ("#1f5fa8", "#c4572b", "#3b8a4e", "#7d4fa0", "#8a6d1d", "#a83a6b")


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    env_steps: int
    # Of the run's clock, this evaluation and those before it included.
    seconds: float
    # What all these evaluations took of them.
    evaluating: float
    updates: int
    # By episode index, on the test list.
    returns: list[float]
    # What the whole process has taken of the processor by then; 0 where it was not recorded.
    processor_s: float = 0.0

    @property
    def trial_return(self) -> float:
        """The sum over the episodes of a trial."""
        return math.fsum(self.returns)


class Curve(Protocol):
    """What is read here of a run."""

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> list[float]: ...
    @property
    def curve(self) -> list[Point]: ...
    @property
    def env_steps_per_s(self) -> float: ...
    @property
    def updates_per_s(self) -> float: ...
    @property
    def others(self) -> float: ...


def point_of(line: Mapping[str, Any]) -> Point | None:
    """The evaluation that a line of metrics holds, if it holds one; where test tasks can be training tasks,
    theirs.
    """
    returns = [values for name, values in curves_of(line).items() if name in ("held_out", "in_distribution")]
    if not returns:
        return None
    return Point(
        line["env_steps"],
        line["time/seconds"],
        line.get("time/evaluate", 0.0) * line["time/seconds"],
        line["updates"],
        returns[0],
        line.get("processor_s", 0.0),
    )


def crossing(curve: Sequence[Point], mark: float) -> Point | None:
    """The first evaluation that reaches the mark, whatever comes later."""
    return next((point for point in curve if point.trial_return >= mark), None)


def by_name(runs: Iterable[Curve]) -> dict[str, list[Curve]]:
    """The seeds of each recipe; runs that were never evaluated say nothing."""
    found: dict[str, list[Curve]] = {}
    for run in runs:
        if run.curve:
            found.setdefault(run.name, []).append(run)
    return found


def summary_of(runs: Iterable[Curve]) -> dict[str, Any]:
    """For each recipe: its last returns, and for each mark the seeds that reached it, when."""
    return {name: _summary(seeds) for name, seeds in by_name(runs).items()}


def _summary(seeds: Sequence[Curve]) -> dict[str, Any]:
    last = [run.curve[-1] for run in seeds]
    episodes = min(len(point.returns) for point in last)
    found: dict[str, Any] = {
        "seeds": len(seeds),
        "trial_return": iqm_interval([point.trial_return for point in last]),
        "by_episode": [iqm_interval([point.returns[index] for point in last]) for index in range(episodes)],
        "marks": {},
    }
    for mark in sorted({mark for run in seeds for mark in run.marks}):
        points = [point for run in seeds if (point := crossing(run.curve, mark)) is not None]
        found["marks"][f"{mark:g}"] = {
            "reached": len(points),
            "seconds": [round(point.seconds, 1) for point in points],
            "env_steps": [point.env_steps for point in points],
            "processor_s": [round(point.processor_s, 1) for point in points],
        }
    for rate in ("env_steps_per_s", "updates_per_s", "others"):
        found[rate] = statistics.fmean(getattr(run, rate) for run in seeds)
    return found


def table_of(runs: Iterable[Curve]) -> Table:
    """What the runs of each recipe reached, and when."""
    table = Table(title="return on test tasks", title_justify="left")
    for title in (
        "recipe",
        "seeds",
        "per trial",
        "by episode",
        "minutes",
        "env steps",
        "env-steps/s",
        "updates/s",
        "others' cores",
        "to a mark",
    ):
        table.add_column(title, justify="left" if title in ("recipe", "by episode", "to a mark") else "right")
    for name, seeds in by_name(runs).items():
        found, last = _summary(seeds), [run.curve[-1] for run in seeds]
        table.add_row(
            name,
            str(found["seeds"]),
            str(found["trial_return"]),
            ", ".join(map(str, found["by_episode"])),
            f"{statistics.fmean(point.seconds for point in last) / 60:.1f}",
            f"{statistics.fmean(point.env_steps for point in last):,.0f}",
            f"{found['env_steps_per_s']:,.0f}",
            f"{found['updates_per_s']:.2f}",
            f"{found['others']:.2f}",
            "\n".join(_mark_text(mark, one, found["seeds"]) for mark, one in found["marks"].items()),
        )
    return table


def _mark_text(mark: str, found: Mapping[str, Any], seeds: int) -> str:
    if not found["reached"]:
        return f"{mark}: not reached"
    times = ", ".join(
        f"{seconds / 60:.1f} min ({steps / 1e6:.3g} M" + f", {processor:.0f} CPU-s" * (processor > 0) + ")"
        for seconds, steps, processor in zip(
            found["seconds"], found["env_steps"], found["processor_s"], strict=True
        )
    )
    return f"{mark}: {times}" + (f"; {found['reached']} of {seeds} seeds" if found["reached"] < seeds else "")


def band(
    curves: Sequence[Sequence[Point]], axis: str, points: int = 200
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(places along the axis, mean, low, high) of the return per trial over seeds.

    The band ends where the first seed does: beyond that it would speak of fewer seeds.
    """
    places = [np.array([getattr(point, axis) for point in curve], float) for curve in curves]
    values = [np.array([point.trial_return for point in curve]) for curve in curves]
    grid = places[0]
    if len(curves) > 1:
        grid = np.linspace(max(one[0] for one in places), min(one[-1] for one in places), points)
    rows = np.stack([np.interp(grid, place, value) for place, value in zip(places, values, strict=True)])
    return grid, *iqm_band(rows)


def family_of(name: str) -> str:
    """What recipes of one panel have in common: all of the name but its last word, which says how."""
    return name.rpartition("_")[0] or name


def draw(path: Path, runs: Iterable[Curve]) -> None:
    """Draw a row of two panels for each family of recipes: return against minutes, and against env steps."""
    # Imported here, so that a run which is only measured does not wait for matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families: dict[str, dict[str, list[Curve]]] = {}
    for name, seeds in by_name(runs).items():
        families.setdefault(family_of(name), {})[name] = seeds
    if not families:
        return
    figure = Figure(figsize=(12.0, 3.4 * len(families)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(families), 2, squeeze=False, sharey="row")
    for row, (family, recipes) in zip(rows, families.items(), strict=True):
        for panel, axis in zip(row, ("seconds", "env_steps"), strict=True):
            _draw_axis(panel, recipes, axis)
        row[0].set_ylabel("return per trial on test tasks", color=INK)
        row[0].set_title(family, fontsize=11, color=INK, loc="left", fontweight="bold")
        row[0].legend(frameon=False, fontsize=9)
    aside = path.with_name(f".{path.name}")
    figure.savefig(aside, format="png")
    aside.replace(path)


def _draw_axis(panel: Axes, recipes: Mapping[str, Sequence[Curve]], axis: str) -> None:
    from matplotlib.ticker import EngFormatter

    # The published marks are dashed lines, and the panel is as high as the marks and what the runs did.
    marks = sorted({mark for seeds in recipes.values() for run in seeds for mark in run.marks})
    for mark in marks:
        panel.axhline(mark, color=QUIET, linewidth=1, linestyle=(0, (5, 4)), zorder=1)
    returns = [point.trial_return for seeds in recipes.values() for run in seeds for point in run.curve]
    low, high = min([*marks, *returns]), max([*marks, *returns])
    margin = 0.05 * (high - low) or 1.0
    panel.set_ylim(low - margin, high + margin)
    for colour, (name, seeds) in zip(COLOURS * len(recipes), recipes.items(), strict=False):
        _draw_recipe(panel, name, seeds, axis, colour)
    if axis == "env_steps":
        panel.set_xscale("log")  # recipes differ a hundredfold in env steps
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.set_xlabel("env steps", color=INK)
    else:
        panel.set_xlim(left=0)
        panel.set_xlabel("minutes", color=INK)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK, labelsize=9)


def _draw_recipe(panel: Axes, name: str, seeds: Sequence[Curve], axis: str, colour: str) -> None:
    """Draw one recipe: its mean and interval over enough seeds, and each seed as a line of its own."""

    def line(curves: Sequence[Sequence[Point]], width: float, label: str | None) -> None:
        place, mean, low, high = band(curves, axis)
        place = place / 60 if axis == "seconds" else place
        panel.plot(place, mean, color=colour, linewidth=width, label=label, zorder=3)
        panel.fill_between(place, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)

    if len(seeds) >= FEWEST:
        line([run.curve for run in seeds], 2.0, f"{name}, {len(seeds)} seeds, 95 %")
        for run in seeds:
            line([run.curve], 0.7, None)
        return
    # One line stands for the label, or the legend would name a recipe as often as it has seeds.
    count = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    for number, run in enumerate(seeds):
        line([run.curve], 2.0 if len(seeds) == 1 else 1.4, None if number else f"{name}{count}")

"""Curves of learning: when they reach a mark, what several seeds say together, and a picture."""

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

from policies.evaluation import curves_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t for an interval of 95 %, by the number of seeds."""

FEWEST_SEEDS = 3
"""Of fewer there is no interval, and each is drawn by itself alone."""

INK, QUIET = "#222222", "#7a7a7a"
COLOURS = ("#1f5fa8", "#c4572b", "#3b8a4e", "#7d4fa0", "#8a6d1d", "#a83a6b")


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    env_steps: int
    seconds: float
    """Of the run's clock, this evaluation and those before it included."""
    evaluating: float
    """What all these evaluations took of them."""
    updates: int
    returns: list[float]
    """By episode index, on the test list."""

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
    )


def crossing(curve: Sequence[Point], mark: float) -> Point | None:
    """The first evaluation that reaches the mark, whatever comes later."""
    return next((point for point in curve if point.trial_return >= mark), None)


def mean_and_half(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its interval of 95 %; none of two values, which say nothing of it."""
    if len(values) < FEWEST_SEEDS:
        return statistics.fmean(values), None
    return statistics.fmean(values), STUDENT.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(
        len(values)
    )


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
        "trial_return": mean_and_half([point.trial_return for point in last]),
        "marks": {},
    }
    found["by_episode"] = [
        mean_and_half([point.returns[index] for point in last]) for index in range(episodes)
    ]
    for mark in sorted({mark for run in seeds for mark in run.marks}):
        points = [point for run in seeds if (point := crossing(run.curve, mark)) is not None]
        found["marks"][f"{mark:g}"] = {
            "reached": len(points),
            "seconds": [round(point.seconds, 1) for point in points],
            "env_steps": [point.env_steps for point in points],
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
            _with_half(*found["trial_return"]),
            ", ".join(_with_half(*one) for one in found["by_episode"]),
            f"{statistics.fmean(point.seconds for point in last) / 60:.1f}",
            f"{statistics.fmean(point.env_steps for point in last):,.0f}",
            f"{found['env_steps_per_s']:,.0f}",
            f"{found['updates_per_s']:.2f}",
            f"{found['others']:.2f}",
            "\n".join(_mark_text(mark, one, found["seeds"]) for mark, one in found["marks"].items()),
        )
    return table


def _with_half(mean: float, half: float | None) -> str:
    return f"{mean:.4g}" if half is None else f"{mean:.4g} ± {half:.2g}"


def _mark_text(mark: str, found: Mapping[str, Any], seeds: int) -> str:
    if not found["reached"]:
        return f"{mark}: not reached"
    times = ", ".join(
        f"{seconds / 60:.1f} min ({steps / 1e6:.3g} M)"
        for seconds, steps in zip(found["seconds"], found["env_steps"], strict=True)
    )
    return f"{mark}: {times}" + (f"; {found['reached']} of {seeds} seeds" if found["reached"] < seeds else "")


def band(
    curves: Sequence[Sequence[Point]], axis: str, points: int = 200
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Where along the axis, mean and half width over seeds of the return per trial, for as long as every one
    of them has evaluations.
    """
    places = [np.array([getattr(point, axis) for point in curve], float) for curve in curves]
    values = [np.array([point.trial_return for point in curve]) for curve in curves]
    grid = (
        np.linspace(max(one[0] for one in places), min(one[-1] for one in places), points)
        if len(curves) > 1
        else places[0]
    )
    rows = np.stack([np.interp(grid, place, value) for place, value in zip(places, values, strict=True)])
    both = [mean_and_half(column.tolist()) for column in rows.T]
    return grid, np.array([mean for mean, _ in both]), np.array([half or 0.0 for _, half in both])


def family_of(name: str) -> str:
    """What recipes of one panel have in common: all of the name but its last word, which says how."""
    return name.rpartition("_")[0] or name


def draw(path: Path, runs: Iterable[Curve]) -> None:
    """A row of two panels for each family of recipes: return per trial against minutes and against env steps."""
    from matplotlib.backends.backend_agg import (
        FigureCanvasAgg,
    )  # here: a run that is only measured should not wait for it
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
            _draw_panel(panel, recipes, axis)
        row[0].set_ylabel("return per trial on test tasks", color=INK)
        row[0].set_title(family, fontsize=11, color=INK, loc="left", fontweight="bold")
        row[0].legend(frameon=False, fontsize=9)
    aside = path.with_name(f".{path.name}")
    figure.savefig(aside, format="png")
    aside.replace(path)


def _draw_panel(panel: Axes, recipes: Mapping[str, Sequence[Curve]], axis: str) -> None:
    from matplotlib.ticker import EngFormatter

    marks = sorted({mark for seeds in recipes.values() for run in seeds for mark in run.marks})
    for mark in marks:
        panel.axhline(mark, color=QUIET, linewidth=1, linestyle=(0, (5, 4)), zorder=1)
    shown = [
        *marks,
        *(point.trial_return for seeds in recipes.values() for run in seeds for point in run.curve),
    ]
    room = 0.05 * (max(shown) - min(shown)) or 1.0
    panel.set_ylim(
        min(shown) - room, max(shown) + room
    )  # an interval of three seeds may be far wider than what any of them did
    for colour, (name, seeds) in zip(COLOURS * len(recipes), recipes.items(), strict=False):
        together = len(seeds) >= FEWEST_SEEDS
        count = f", {len(seeds)} seeds" + (", 95 %" if together else "") if len(seeds) > 1 else ""
        alone: list[Sequence[Curve]] = [
            [run] for run in seeds
        ]  # each to its own end, beside their mean where there are enough
        for number, part in enumerate([seeds, *alone] if together else alone):
            place, mean, half = band([run.curve for run in part], axis)
            place = place / 60 if axis == "seconds" else place
            label = None if number else f"{name}{count}"
            thin = together and number > 0
            panel.plot(
                place,
                mean,
                color=colour,
                linewidth=0.7 if thin else 2 if together or len(seeds) == 1 else 1.4,
                label=label,
                zorder=3,
            )
            panel.fill_between(
                place, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0, zorder=2
            )
    if axis == "env_steps":
        panel.set_xscale("log")  # recipes differ a hundredfold in them
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    else:
        panel.set_xlim(left=0)
    panel.set_xlabel("minutes" if axis == "seconds" else "env steps", color=INK)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK, labelsize=9)

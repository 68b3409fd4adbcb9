"""The whole suite on one page of pictures.

    python -m benchmarks.pages.gallery [--out gallery.png] [names...]

A family does nothing for its panel: what is drawn follows from what it reports. A panel has pictures of
the first episode, played by the oracle where the family has one. Where actions are continuous it also has
traces of the oracle and of uniform actions in several tasks. A trace is the path on the plane if the family
reports positions (x and y, or x, in its info, or in its observation on the plane), else the return so far.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Rows, Shard, Shelf, TaskFamily, arrays_of, uniform_actions
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.meta.third_party.installed import missing
from utils.options import OptionError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The tasks whose traces are drawn.
TASKS = 6
# The pictures and traces of a panel.
PICTURES = 4
# The columns of panels on the page.
COLUMNS = 3
_INK, _QUIET, _ALARM = "#222222", "#6a6a6a", "#a03020"
# The page in inches: its margin, a panel's width and height, a picture's side, the gap to the next, room for
# numbers at an axis, the heading of a shelf.
_MARGIN, _PANEL, _HEIGHT, _SIDE, _GAP, _TICKS, _HEADING = 0.35, 6.6, 2.75, 1.5, 0.12, 0.15, 0.5


@dataclass
class Traces:
    """What happened in the episodes of several tasks: places on the plane, or numbers over the steps."""

    policy: str
    # What the lines show: "x, y" (on the plane), "x" or "return so far" (over the steps).
    quantity: str
    # A line for each task: [steps + 1, 2] or [steps + 1].
    lines: list[NDArray[np.float64]]


@dataclass
class Panel:
    """The texts and pictures of one family."""

    name: str
    shelf: Shelf
    version: int
    line: str
    facts: str = ""
    pictures: list[tuple[str, NDArray[np.uint8]]] = field(default_factory=list)
    traces: list[Traces] = field(default_factory=list)
    # Why there is no picture.
    note: str = ""


# -- playing -------------------------------------------------------------------------------------------------


def panel_of(name: str, longest: int = 10_000) -> Panel:
    """Play one family, at most `longest` steps of an episode."""
    kind = FAMILIES[name]
    panel = Panel(name, kind.shelf, kind.version, (inspect.getdoc(kind) or "").partition("\n")[0])
    if reason := missing(kind):
        panel.note = reason
        return panel
    try:
        family = kind(kind.Config().for_pictures())
        tasks = family.sample_tasks(np.random.default_rng(0), TASKS, "test")
        scripted = family.has_oracle
        longest = min(longest, family.config.max_episode_steps)
        if isinstance(family.spec.action_space, spaces.Box):
            policies = (True, False) if scripted else (False,)
            panel.traces = [_traces(family, tasks, oracle, longest) for oracle in policies]
    except (OptionError, ImportError) as error:
        panel.note = f"Cannot be built here: {error}"
        return panel
    panel.facts = _facts(family)
    try:
        panel.pictures = _pictures(family, tasks[:1], scripted, longest, PICTURES - len(panel.traces))
    except RuntimeError as error:
        # There is no OpenGL, a library that draws is missing, or the family draws nothing.
        panel.note = f"No picture: {error}"
        panel.traces = panel.traces or [_traces(family, tasks, scripted, longest)]
    return panel


def _facts(family: TaskFamily) -> str:
    reference = family.spec.reference
    words = [f"k={family.config.max_rollouts_per_task}, H={family.config.max_episode_steps}"]
    if reference is not None:
        known = {"oracle": reference.oracle, "random": reference.random}
        returns = [f"{policy} {value:g}" for policy, value in known.items() if value is not None]
        words.append(f"returns: {', '.join(returns)}")
    return "   ".join(words)


def _play(
    family: TaskFamily,
    tasks: NDArray[np.float64],
    oracle: bool,
    longest: int,
    on_row: Callable[[int, Shard, Rows], None],
) -> None:
    """Play the first episode of each task, and call `on_row(step, shard, rows)` at every row.

    A slot whose episode has ended is not stepped any more.
    """
    count = len(tasks)
    shard, rows, rng = family.make_shard(count), Layout(family.spec).allocate(count), np.random.default_rng(0)
    shard.bind(rows)
    try:
        going = np.arange(count)
        shard.reset(going, tasks, rng.integers(2**63, size=count).astype(np.uint64))
        on_row(0, shard, rows)
        for step in range(1, longest + 1):
            if oracle:
                actions = family.oracle_action(rows.obs, tasks, rows.info)
            else:
                actions = uniform_actions(rng, family.spec.action_space, count)
            rows.reward[:] = 0.0
            shard.step(going, actions[going])
            on_row(step, shard, rows)
            going = going[~rows.ended[going]]
            if not len(going):
                break
    finally:
        shard.close()


def _pictures(
    family: TaskFamily, task: NDArray[np.float64], oracle: bool, longest: int, count: int
) -> list[tuple[str, NDArray[np.uint8]]]:
    """`count` pictures of one episode, from its start to its end, or to where the oracle first succeeds."""
    success, length, pictures = family.spec.success, 0, []
    solved = None

    def measure(step: int, shard: Shard, rows: Rows) -> None:
        nonlocal length, solved
        length = step
        if oracle and success and solved is None and rows.info[0, family.spec.info_names.index(success)]:
            solved = step

    def draw(step: int, shard: Shard, rows: Rows) -> None:
        if step in wanted:
            caption = f"{policy}, step 0" if step == 0 else f"step {step}"
            pictures.append((caption, shard.render(0).copy()))

    _play(family, task, oracle, longest, measure)
    policy = "oracle" if oracle else "random"
    wanted = set(np.linspace(0, solved or length, count).round().astype(int).tolist())
    _play(family, task, oracle, longest, draw)
    return pictures


def _traces(family: TaskFamily, tasks: NDArray[np.float64], oracle: bool, longest: int) -> Traces:
    quantity, place = _places(family)
    ended, total = np.zeros(len(tasks), np.bool_), np.zeros(len(tasks))
    lines: list[list[Any]] = [[] for _ in tasks]

    def on_row(step: int, shard: Shard, rows: Rows) -> None:
        nonlocal ended
        total[:] += rows.reward
        places = total.copy() if place is None else place(rows)
        for line in np.flatnonzero(~ended):
            lines[line].append(places[line])
        ended = rows.ended.copy()

    _play(family, tasks, oracle, longest, on_row)
    policy = "oracle" if oracle else "random"
    return Traces(policy, quantity, [np.array(line, np.float64) for line in lines])


def _places(family: TaskFamily) -> tuple[str, Callable[[Rows], NDArray[Any]] | None]:
    """Which positions the family reports, and how to read them; none where it reports no position."""
    names, space = family.spec.info_names, family.spec.obs_space
    if "x" in names:
        x = names.index("x")
        if "y" not in names:
            return "x", lambda rows: rows.info[:, x].copy()
        y = names.index("y")
        return "x, y", lambda rows: rows.info[:, [x, y]]
    on_plane = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] >= 2
    if family.shelf is Shelf.toy and on_plane:
        # The observation is an array here, since its space is a Box.
        return "x, y", lambda rows: arrays_of(rows.obs)[0][:, :2].copy()
    return "return so far", None


# -- drawing -------------------------------------------------------------------------------------------------


def draw_page(panels: Iterable[Panel]) -> Figure:
    """Draw all panels on one page, shelf by shelf."""
    # Imported here, so that the families can be imported without waiting for matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = list(panels)
    shelves = {shelf: [panel for panel in panels if panel.shelf is shelf] for shelf in Shelf}
    shelves = {shelf: found for shelf, found in shelves.items() if found}
    columns = max([1, *(min(COLUMNS, len(found)) for found in shelves.values())])
    width = 2 * _MARGIN + columns * _PANEL
    height = 2 * _MARGIN + sum(_HEADING + -(-len(found) // columns) * _HEIGHT for found in shelves.values())
    figure = Figure(figsize=(width, height), dpi=80)
    FigureCanvasAgg(figure)
    legend = f"Lines are the first episodes in {TASKS} test tasks, from the dot to the cross."
    figure.text(
        1 - _MARGIN / width, 1 - _MARGIN / height, legend, fontsize=9, color=_QUIET, ha="right", va="top"
    )
    top = height - _MARGIN
    for shelf, found in shelves.items():
        figure.text(
            _MARGIN / width, top / height, shelf.value, fontsize=17, fontweight="bold", color=_INK, va="top"
        )
        top -= _HEADING
        for number, panel in enumerate(found):
            row, column = divmod(number, columns)
            _draw_panel(figure, panel, _MARGIN + column * _PANEL, top - row * _HEIGHT)
        top -= -(-len(found) // columns) * _HEIGHT
    return figure


def _draw_panel(figure: Figure, panel: Panel, left: float, top: float) -> None:
    width, height = figure.get_size_inches()

    def words(text: str, x: float, y: float, **style: Any) -> None:
        figure.text((left + x) / width, (top - y) / height, text, va="top", **style)

    def axes(x: float, y: float, wide: float = _SIDE, high: float = _SIDE) -> Axes:
        return figure.add_axes(
            ((left + x) / width, (top - 0.72 - y - high) / height, wide / width, high / height)
        )

    words(panel.name, 0.0, 0.0, fontsize=12.5, fontweight="bold", color=_INK)
    words(f"v{panel.version}   {panel.facts}", 2.35, 0.03, fontsize=9, color=_QUIET)
    words("\n".join(textwrap.wrap(panel.line, 96)[:2]), 0.0, 0.24, fontsize=9, color=_INK)
    for (x, y, wide, high), (caption, picture) in zip(_spots(panel), panel.pictures, strict=True):
        drawn = axes(x, y, wide, high)
        drawn.imshow(picture, interpolation="nearest" if max(picture.shape) < 100 else "antialiased")
        drawn.set_axis_off()
        drawn.set_title(caption, fontsize=8, color=_QUIET, pad=2)
    for place, traces in enumerate(panel.traces, start=PICTURES - len(panel.traces)):
        _draw_traces(axes(place * (_SIDE + _GAP) + _TICKS, 0.0, _SIDE - _TICKS), traces)
    if panel.note:
        wide = 96 if not panel.traces else 24 * (PICTURES - len(panel.traces)) - 6
        words("\n".join(textwrap.wrap(panel.note, wide)[:9]), 0.0, 0.75, fontsize=8.5, color=_ALARM)


def _spots(panel: Panel) -> list[tuple[float, float, float, float]]:
    """(x, y, width, height) of each picture: in as many rows as make the pictures largest."""
    count, room = len(panel.pictures), (PICTURES - len(panel.traces)) * (_SIDE + _GAP) - _GAP
    if not count:
        return []
    shape = panel.pictures[0][1].shape

    def cell(rows: int) -> tuple[float, float]:
        columns = -(-count // rows)
        return (room - (columns - 1) * _GAP) / columns, (_SIDE - (rows - 1) * 0.2) / rows

    rows = max(range(1, count + 1), key=lambda rows: min(cell(rows)[0], cell(rows)[1] * shape[1] / shape[0]))
    wide, high = cell(rows)
    columns = -(-count // rows)
    return [
        (place % columns * (wide + _GAP), place // columns * (high + 0.2), wide, high)
        for place in range(count)
    ]


def _draw_traces(panel: Axes, traces: Traces) -> None:
    for number, line in enumerate(traces.lines):
        colour = f"C{number}"
        if line.ndim == 2:
            panel.plot(line[:, 0], line[:, 1], color=colour, linewidth=1, alpha=0.8)
            panel.plot(*line[0], "o", color=colour, markersize=2.5)
            panel.plot(*line[-1], "x", color=colour, markersize=4.5)
        else:
            panel.plot(np.arange(len(line)), line, color=colour, linewidth=1, alpha=0.8)
    if traces.lines[0].ndim == 2:
        panel.set_aspect("equal", adjustable="datalim")
    panel.set_title(f"{traces.policy}: {traces.quantity}", fontsize=8, color=_QUIET, pad=2)
    panel.tick_params(labelsize=6, colors=_QUIET, length=2, pad=1)
    panel.locator_params(nbins=4)
    for spine in panel.spines.values():
        spine.set_color("#cccccc")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages.gallery", description="Draw the families as one page of pictures."
    )
    parser.add_argument("names", nargs="*", help="families to draw; all of them if none is named")
    parser.add_argument(
        "--out", type=Path, default=Path("gallery.png"), help="where to write the page (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    for name in chosen.names:
        if name not in FAMILIES:
            parser.error(f"There is no family {name!r}.{nearest(name, FAMILIES)}")
    names, panels = chosen.names or list(FAMILIES), []
    for number, name in enumerate(names, start=1):
        began = time.perf_counter()
        panel = panel_of(name)
        panels.append(panel)
        took = f"{time.perf_counter() - began:.1f} s"
        print(f"{number}/{len(names)} {name}: {panel.note or took}", flush=True)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    draw_page(panels).savefig(chosen.out, format="png")
    print(f"Drawn: {chosen.out}")


if __name__ == "__main__":
    main()

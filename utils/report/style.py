"""How the figures of a report look: colours, lines and marks that are told apart in grey print, too."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.disk.own_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers tell apart. In grey they differ little, so each
# comes with a line and a mark of its own.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#7a5c1e")
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1.2, 1.4),
    (6, 1.6, 1.2, 1.6),
    (9, 3),
    (3, 1.2, 3, 1.2, 1, 1.2),
    (2.5, 2.5),
    (7, 1, 1, 1, 1, 1),
)
_MARKS = "os^DvPX*"
_LABEL_WIDTH = 44
# What is there to compare with stands back behind what is compared.
QUIET = "#7a7a7a"
# Where a line ends, its name, and its colour.
Label = tuple[float, str, str | tuple[float, ...]]
_SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    # Text stays text, which a paper sets in its own font; and equal figures are equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "retrial",
}


@dataclass(frozen=True)
class Look:
    """How one setting is drawn in every figure."""

    colour: str
    dashes: tuple[float, ...]
    mark: str

    @property
    def line(self) -> tuple[int, tuple[float, ...]]:
        """The line as matplotlib takes it; without dashes it is solid."""
        return 0, self.dashes


def looks_of(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each of the settings that are drawn."""
    return dict(zip(labels, map(Look, _COLOURS, _DASHES, _MARKS), strict=False))


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of reports, whatever a user's own matplotlib is set to."""
    import matplotlib  # here and below: half a second, which only who draws should wait for

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no display, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG; a viewer never sees half of one, and equal figures are equal files."""
    written: list[Path] = []
    for kind, metadata in {"png": {"Software": None}, "svg": {"Date": None}}.items():
        path = stem.with_suffix(f".{kind}")
        with replacing(path) as file:
            figure.savefig(file, format=kind, metadata=metadata)
        written.append(path)
    return written


def add_legend(figure: Figure, looks: Mapping[str, Look], names: Mapping[str, str]) -> None:
    """One legend for all panels, below them; none where there is a single setting."""
    from matplotlib.lines import Line2D

    if len(looks) < 2:
        return
    handles = [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.mark, markersize=4)
        for look in looks.values()
    ]
    texts = [wrapped_label(names[label]) for label in looks]
    # As many columns as the longest name leaves room for; an inch holds about thirteen letters.
    longest = max(len(line) for text in texts for line in text.splitlines())
    columns = max(1, min(len(looks), int(figure.get_figwidth() * 13 / (longest + 8))))
    # The legend takes no room from the panels: the figure grows by its lines.
    rows = [texts[start : start + columns] for start in range(0, len(texts), columns)]
    lines = sum(max(text.count("\n") + 1 for text in row) for row in rows)
    figure.set_figheight(figure.get_figheight() + 0.2 * lines)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=3.2)


def wrapped_label(label: str) -> str:
    """A long label on several lines."""
    return "\n".join(textwrap.wrap(label, _LABEL_WIDTH, break_long_words=False))


def steps_axis(panel: Axes) -> None:
    """An axis of env steps: 250k, 1M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(nbins=5))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("env steps")


def draw_levels(panel: Axes, levels: Mapping[str, float]) -> None:
    """Dashed lines behind everything else: what an oracle and random actions return."""
    for level in filter(math.isfinite, levels.values()):
        panel.axhline(level, color=QUIET, linewidth=1, linestyle=(0, (5, 4)), zorder=1)


def name_ends(panel: Axes, labels: Sequence[Label], gap: float) -> None:
    """Names to the right of the lines that they belong to, as near to their ends as letters allow.

    `gap` is the share of the panel's height that a name needs. The panel must be drawn already: its limits
    decide how far apart the names must be.
    """
    labels = sorted((label for label in labels if math.isfinite(label[0])), key=lambda label: label[0])
    low, high = panel.get_ylim()
    heights = _spread([height for height, _, _ in labels], gap * (high - low))
    for height, (_, text, color) in zip(heights, labels, strict=True):
        panel.annotate(
            text,
            (1.01, height),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
            color=color,
            annotation_clip=False,
        )


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """The sorted heights, moved as little as needed to be `gap` apart."""
    # Neighbours that are too close become a block around their mean, which may grow into the one below.
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and _span(blocks[-1], gap)[0] - _span(blocks[-2], gap)[1] < gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_span(block, gap)[0] + gap * place for block in blocks for place in range(len(block))]


def _span(block: Sequence[float], gap: float) -> tuple[float, float]:
    centre, half = math.fsum(block) / len(block), gap * (len(block) - 1) / 2
    return centre - half, centre + half

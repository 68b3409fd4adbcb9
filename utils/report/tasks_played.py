"""One picture of a run: which tasks were played when, as training went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utils.disk.own_files import replacing
from utils.logger import METRICS, STEP_KEY, read_metrics

PICTURE = "tasks_played.png"
# The metric that counts the trials of each group of tasks in a wave.
TRIALS = "curriculum/trials"
# So many stretches of training stand side by side.
_MOST_COLUMNS = 60
# So many groups have their names beside them; of more their numbers are shown.
_MOST_NAMES = 24


def shares_over_training(lines: Sequence[Mapping[str, Any]], groups: int) -> NDArray[np.float64]:
    """[columns, groups] the share of each group in the trials of equal stretches of training."""
    waves = [(line[STEP_KEY], line[TRIALS]) for line in lines if len(line.get(TRIALS, ())) == groups]
    if not waves:
        return np.zeros((0, groups))
    columns = min(len(waves), _MOST_COLUMNS)
    last = waves[-1][0]
    counts = np.zeros((columns, groups))
    for env_steps, trials in waves:
        counts[min(int(columns * env_steps / (last + 1)), columns - 1)] += trials
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def draw_tasks_played(folder: Path, names: Sequence[str], title: str) -> Path | None:
    """Draw into a run folder how often each group of tasks was played; None where there is nothing to see."""
    if len(names) < 2:
        return None
    lines = read_metrics(folder / METRICS)
    shares = shares_over_training(lines, len(names))
    if not len(shares):
        return None
    # Imported here, since it takes half a second, and a run should not start with that.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(6.8, 1.6 + min(0.28 * len(names), 5.0)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    last = max(line[STEP_KEY] for line in lines if TRIALS in line)
    # The first group stands at the top.
    extent = (0, last, len(names), 0)
    image = panel.imshow(shares.T, cmap="Blues", vmin=0, interpolation="nearest", extent=extent)
    panel.set_aspect("auto")
    if len(names) <= _MOST_NAMES:
        panel.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("env steps")
    figure.colorbar(image, ax=panel, label="share of the trials")
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    with replacing(folder / PICTURE) as file:  # a viewer that has it open never sees half of one
        figure.savefig(file, format="png")
    return folder / PICTURE

"""Statistics over a few seeds or tasks: interquartile means with bootstrap intervals.

Both are those of Agarwal et al. (arXiv:2108.13264). They read scores alone, so whoever has numbers may use
them: a run's table, a report over runs, the benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Fewer scores say nothing about others of their kind, so there is no interval for them.
FEWEST = 3
# The share of the scores that the interquartile mean leaves out at either end.
CUT = 0.25
RESAMPLES = 2000
# The bounds of a 95 % interval, in percent.
BOUNDS = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its 95 % interval, or without bounds where the scores are too few."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean of the middle half of all scores: a lucky or unlucky one moves it less than the mean."""
    return float(_middle_half(np.asarray(scores, float).ravel()))


def iqm_interval(scores: ArrayLike) -> Interval:
    """The interquartile mean of scores [runs] or [runs, tasks], with its stratified bootstrap interval.

    The bootstrap draws the runs of every task anew and apart from those of other tasks, so each resample
    holds as many scores of a task as there are runs. For the tasks of a single run, [tasks], it draws tasks.
    Its stream is fixed: equal scores have equal intervals.
    """
    runs = np.asarray(scores, float)
    mean = interquartile_mean(runs)
    if len(runs) < FEWEST:
        return Interval(mean)
    # Every task is a sample of its own, which is resampled apart from the others.
    by_task = tuple(runs.T) if runs.ndim > 1 else (runs,)
    low, high = _bounds(by_task)
    return Interval(mean, float(low), float(high))


def iqm_band(curves: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(mean, low, high), each [points], of curves [runs, points]; too few runs have the mean as bounds."""
    mean = _middle_half(curves.T)
    if len(curves) < FEWEST:
        return mean, mean, mean
    low, high = _bounds((curves,))
    return mean, low, high


def _bounds(samples: tuple[NDArray[np.float64], ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The bounds of the percentile bootstrap over the first axis of all samples together.

    With numpy alone, since to import scipy's takes longer than a thousand of these.
    """
    rng = np.random.default_rng(0)
    drawn = [
        np.moveaxis(scores, 0, -1)[..., rng.integers(len(scores), size=(RESAMPLES, len(scores)))]
        for scores in samples
    ]
    means = _middle_half(np.concatenate(drawn, axis=-1))
    low, high = np.percentile(means, BOUNDS, axis=-1)
    return low, high


def _middle_half(scores: NDArray[np.float64]) -> NDArray[Any]:
    """The mean over the last axis of what is left where `CUT` of the scores is cut at either end."""
    count = scores.shape[-1]
    cut = int(CUT * count)
    ordered = np.partition(scores, (cut, count - cut - 1), axis=-1)
    return ordered[..., cut : count - cut].mean(-1)

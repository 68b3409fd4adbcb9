"""The numbers of a comparison: what each setting reached, and how often one is better than another.

Definitions are those of Agarwal et al. (arXiv:2108.13264) and of their library rliable: interquartile means,
probability of improvement, performance profiles, and percentile bootstraps stratified by task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from utils.report.folders import Evaluation, RunFolder
from utils.report.settings import RunSetting
from utils.statistics import BOUNDS, CUT, FEWEST, RESAMPLES, Interval, interquartile_mean, iqm_band

Array = NDArray[np.float64]
# The measures of a table beside the episodes 1..k.
TRIAL, AREA = "trial", "area"


def episode_name(index: int) -> str:
    """The name of the measure of one episode, counted from 0."""
    return f"episode_{index + 1}"


def episodes_of(setting: RunSetting) -> int:
    """k, the episodes of a trial of evaluation."""
    return min(len(one.returns) for one in setting.last)


def run_scores(setting: RunSetting) -> dict[str, list[float]]:
    """{measure: [its value in each counted run]}: the returns of the episodes, their sum, and the area."""
    scores = {
        episode_name(index): [float(one.returns[index]) for one in setting.last]
        for index in range(episodes_of(setting))
    }
    scores[TRIAL] = [one.trial_return for one in setting.last]
    scores[AREA] = [
        area_under_curve(run, end) for run, end in zip(setting.counted, setting.last, strict=True)
    ]
    return scores


def area_under_curve(run: RunFolder, end: Evaluation) -> float:
    """The return per trial on average over the env steps from the first evaluation to this one.

    The curve between two evaluations is a straight line. Divided by its length, the area is a return.
    """
    curve = [one for one in run.evaluations if one.env_steps <= end.env_steps]
    if len(curve) < 2:
        return end.trial_return
    env_steps = np.array([one.env_steps for one in curve], float)
    values = np.array([one.trial_return for one in curve])
    return float(np.trapezoid(values, env_steps) / (env_steps[-1] - env_steps[0]))


def setting_intervals(setting: RunSetting) -> dict[str, Interval]:
    """{measure: interquartile mean over the counted runs with its interval}."""
    scores = run_scores(setting)
    means, lows, highs = iqm_band(np.array(list(scores.values())).T)  # [runs, measures]
    if len(setting.counted) < FEWEST:
        return {name: Interval(float(mean)) for name, mean in zip(scores, means, strict=True)}
    return {
        name: Interval(float(mean), float(low), float(high))
        for name, mean, low, high in zip(scores, means, lows, highs, strict=True)
    }


def stratified_iqm(scores: Sequence[Array]) -> Interval:
    """The interquartile mean of scores [runs] of several tasks; the bootstrap draws the runs of each anew."""
    mean = interquartile_mean(np.concatenate(scores))
    if min(len(runs) for runs in scores) < FEWEST:
        return Interval(mean)
    rng = np.random.default_rng(0)
    drawn = [runs[rng.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in scores]
    resampled = np.sort(np.concatenate(drawn, axis=1), axis=1)
    cut = int(CUT * resampled.shape[1])
    means = resampled[:, cut : resampled.shape[1] - cut].mean(1)
    low, high = np.percentile(means, BOUNDS)
    return Interval(mean, float(low), float(high))


def learning_band(setting: RunSetting, axis: str, points: int = 100) -> tuple[Array, Array, Array, Array]:
    """(places, mean, low, high) of the return per trial over "env_steps" or "seconds" of the counted runs.

    The band begins where the last of them begins and ends where the first one ends: beyond that it would
    speak of fewer runs.
    """
    curves = [run.evaluations for run in setting.counted]
    places = [np.array([getattr(one, axis) for one in curve], float) for curve in curves]
    values = [np.array([one.trial_return for one in curve]) for curve in curves]
    start, end = max(place[0] for place in places), min(place[-1] for place in places)
    # A single run is drawn as it is; of runs without a common stretch a point is left.
    grid = places[0] if len(curves) == 1 else np.linspace(min(start, end), end, points)
    rows = np.stack([np.interp(grid, place, value) for place, value in zip(places, values, strict=True)])
    return grid, *iqm_band(rows)


def improvement(pairs: Sequence[tuple[Array, Array]]) -> Interval:
    """The probability that a run of X beats a run of Y on a task, on average over tasks; ties count half.

    `pairs` holds (scores of X [n], scores of Y [m]) for each task. The bootstrap draws the runs of every task
    anew, those of X apart from those of Y.
    """
    rng = np.random.default_rng(0)
    means: list[float] = []
    resampled = np.zeros(RESAMPLES)
    for x, y in pairs:
        # Each run of X against each run of Y; a resample weighs them by how often it has drawn them.
        wins = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])
        means.append(float(wins.mean()))
        drawn_x, drawn_y = _draws(rng, len(x)), _draws(rng, len(y))
        resampled += np.einsum("rn,nm,rm->r", drawn_x, wins, drawn_y, optimize=True) / len(pairs)
    mean = float(np.mean(means))
    if min(len(scores) for pair in pairs for scores in pair) < FEWEST:
        return Interval(mean)
    low, high = np.percentile(resampled, BOUNDS)
    return Interval(mean, float(low), float(high))


def performance_profile(scores: Sequence[Array], thresholds: Array) -> tuple[Array, Array, Array]:
    """(share, low, high) of scores above each threshold, for scores [runs, tasks] of each environment.

    The bootstrap draws whole runs, and those of every environment apart from the others: the tasks of one run
    were all played by one agent, so they say less about another seed than as many runs would.
    """
    rng = np.random.default_rng(0)
    share, resampled = np.zeros(len(thresholds)), np.zeros((RESAMPLES, len(thresholds)))
    for runs in scores:
        above = (runs[:, :, None] > thresholds).mean(1)  # [runs, thresholds]
        share += above.mean(0) / len(scores)
        resampled += _draws(rng, len(runs)) @ above / len(scores)
    if min(len(runs) for runs in scores) < FEWEST:
        return share, share, share
    low, high = np.percentile(resampled, BOUNDS, axis=0)
    return share, low, high


def _draws(rng: np.random.Generator, runs: int) -> Array:
    """[resamples, runs] the share of each run in each resample, which draws as many runs as there are."""
    return rng.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs

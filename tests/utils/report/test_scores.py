"""Each number of a report against a slow implementation that shares nothing with it, and against rliable."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.utils.report.made_runs import make_run
from utils.report.folders import find_runs
from utils.report.scores import (
    area_under_curve,
    episodes_of,
    improvement,
    learning_band,
    performance_profile,
    run_scores,
    setting_intervals,
    stratified_iqm,
)
from utils.report.settings import RunSetting, group_runs
from utils.statistics import RESAMPLES

RNG_SEED = 5


def made(folder: Path, runs: int, *, pace: float = 0.01) -> RunSetting:
    """A setting whose runs have random returns: 4 evaluations of 3 tasks and 2 episodes."""
    rng = np.random.default_rng(RNG_SEED)
    for seed in range(runs):
        tables = rng.normal(size=(4, 3, 2)).round(3).tolist()
        make_run(folder / str(seed), tables, seed=seed, train__n_env_steps_total=4000, pace=pace)
    ((setting,), _) = group_runs(find_runs([folder]).runs)
    return setting


def slow_iqm(values: list[float]) -> float:
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


def every_resample(values: list[float]) -> list[float]:
    """The interquartile mean of each resample that a bootstrap of so few values can draw."""
    return [slow_iqm(list(drawn)) for drawn in itertools.product(values, repeat=len(values))]


def test_the_scores_of_a_run_are_returns_their_sum_and_the_area_under_its_curve(tmp_path: Path) -> None:
    setting = made(tmp_path, 3)
    scores = run_scores(setting)
    assert list(scores) == ["episode_1", "episode_2", "trial", "area"] and episodes_of(setting) == 2
    for index, run in enumerate(setting.runs):
        trials = [float(one.returns[0] + one.returns[1]) for one in run.evaluations]
        assert scores["episode_1"][index] == run.evaluations[-1].returns[0]
        assert scores["trial"][index] == pytest.approx(trials[3], abs=1e-12)
        # Equal distances between evaluations: the first and the last count half.
        assert scores["area"][index] == pytest.approx(
            (trials[0] / 2 + trials[1] + trials[2] + trials[3] / 2) / 3
        )


def test_the_area_ends_where_the_numbers_are_taken_and_one_evaluation_is_its_own(tmp_path: Path) -> None:
    (run,) = made(tmp_path, 1).runs
    first, second = (one.trial_return for one in run.evaluations[:2])
    assert area_under_curve(run, run.evaluations[1]) == pytest.approx((first + second) / 2)
    assert area_under_curve(run, run.evaluations[0]) == first


def test_intervals_lie_where_the_exact_bootstrap_of_all_resamples_has_them(tmp_path: Path) -> None:
    setting = made(tmp_path, 5)
    for name, interval in setting_intervals(setting).items():
        values = run_scores(setting)[name]
        exact = every_resample(values)
        assert interval.mean == pytest.approx(slow_iqm(values))
        assert interval.low is not None and interval.high is not None
        # 2,000 resamples find the bounds up to a small share of the distribution.
        assert np.mean(np.array(exact) < interval.low) == pytest.approx(0.025, abs=0.02)
        assert np.mean(np.array(exact) > interval.high) == pytest.approx(0.025, abs=0.02)


def test_two_runs_have_no_interval(tmp_path: Path) -> None:
    assert {one.low for one in setting_intervals(made(tmp_path, 2)).values()} == {None}


def test_a_band_is_the_mean_of_the_curves_where_all_runs_have_been(tmp_path: Path) -> None:
    setting = made(tmp_path, 3)
    places, mean, low, high = learning_band(setting, "env_steps")
    assert (places[0], places[-1]) == (1000, 4000)
    last = [one.trial_return for one in setting.last]
    assert mean[-1] == pytest.approx(slow_iqm(last))
    # The middle between two evaluations.
    middle = [(run.evaluations[0].trial_return + run.evaluations[1].trial_return) / 2 for run in setting.runs]
    assert np.interp(1500, places, mean) == pytest.approx(slow_iqm(middle), rel=0.02)
    assert (low <= mean).all() and (mean <= high).all()


def test_the_band_over_time_ends_with_the_first_run_that_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for seed, pace in enumerate((0.01, 0.02, 0.04)):
        tables = rng.normal(size=(4, 1, 1)).tolist()
        make_run(tmp_path / str(seed), tables, seed=seed, train__n_env_steps_total=4000, pace=pace)
    ((setting,), _) = group_runs(find_runs([tmp_path]).runs)
    places = learning_band(setting, "seconds")[0]
    assert (places[0], places[-1]) == (40.0, 40.0)


def test_the_probability_of_improvement_counts_every_pair_of_runs_and_ties_half() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 9.0]), np.array([2.0, 0.0, 3.0])
    wins = sum((a > b) + 0.5 * (a == b) for a in x for b in y) / 12
    assert improvement([(x, y)]).mean == pytest.approx(wins)
    # Over two tasks: the mean of both, whatever the sizes of their returns.
    assert improvement([(x, y), (1000 * y, 1000 * x)]).mean == pytest.approx(0.5)
    assert improvement([(x, y[:2])]).low is None


def test_the_interval_of_an_improvement_is_that_of_resampled_runs() -> None:
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=5), rng.normal(0.5, size=4)) for _ in range(2)]
    interval = improvement(pairs)
    means: list[float] = []
    for _ in range(4000):
        drawn = [(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in pairs]
        means.append(float(np.mean([(x[:, None] > y).mean() for x, y in drawn])))
    assert (interval.low, interval.high) == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.03)


def test_a_profile_is_the_share_of_scores_above_each_threshold() -> None:
    rng = np.random.default_rng(2)
    scores = [rng.normal(size=(4, 3)), rng.normal(size=(5, 3))]
    thresholds = np.array([-10.0, 0.0, 10.0])
    share, low, high = performance_profile(scores, thresholds)
    expected = ((scores[0] > 0).mean() + (scores[1] > 0).mean()) / 2
    assert share == pytest.approx([1.0, expected, 0.0])
    assert low[1] < expected < high[1] and (low[0], high[2]) == (1.0, 0.0)
    assert performance_profile([scores[0][:2]], thresholds)[1][1] == (scores[0][:2] > 0).mean()


def test_a_profile_draws_whole_runs() -> None:
    # All tasks of a run are equal here: a thousand tasks say no more about another seed than one does.
    runs = np.array([[0.0], [1.0], [2.0], [3.0]])
    thresholds = np.array([1.5])
    many = performance_profile([np.repeat(runs, 1000, axis=1)], thresholds)
    assert many == performance_profile([runs], thresholds)


def test_the_mean_over_tasks_draws_the_runs_of_each_task_anew() -> None:
    scores = [np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])]
    interval = stratified_iqm(scores)
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    assert stratified_iqm([scores[0][:2], scores[1]]).low is None


@pytest.mark.peers
def test_definitions_are_those_of_rliable() -> None:
    library = pytest.importorskip("rliable.library", reason="rliable is of the extra peers")
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(6, 4)), rng.normal(0.3, size=(5, 4))
    thresholds = np.linspace(-2, 2, 9)

    # Points are equal; intervals come from other random streams.
    means, bounds = library.get_interval_estimates(
        {"x": x}, lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=RESAMPLES
    )
    ours = stratified_iqm(list(x.T))
    assert ours.mean == pytest.approx(means["x"][0])
    assert (ours.low, ours.high) == pytest.approx(tuple(bounds["x"][:, 0]), abs=0.05)

    means, bounds = library.get_interval_estimates(
        {"x,y": (x, y)},
        metrics.probability_of_improvement,
        reps=300,  # each takes its time
    )
    ours = improvement(list(zip(x.T, y.T, strict=True)))
    assert ours.mean == pytest.approx(float(np.ravel(means["x,y"])[0]))
    assert (ours.low, ours.high) == pytest.approx(tuple(np.ravel(bounds["x,y"])), abs=0.06)

    shares, bounds = library.create_performance_profile({"x": x}, thresholds, reps=RESAMPLES)
    share, low, high = performance_profile([task[:, None] for task in x.T], thresholds)
    assert share == pytest.approx(shares["x"])
    assert np.stack([low, high]) == pytest.approx(bounds["x"], abs=0.05)

"""Statistics over seeds or tasks: the interquartile mean, and the coverage of its bootstrap interval."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from utils.statistics import Interval, interquartile_mean, iqm_band, iqm_interval


def test_the_interquartile_mean_is_the_mean_of_the_middle_half() -> None:
    assert interquartile_mean([0.0, 1.0, 2.0, 1000.0]) == 1.5
    assert interquartile_mean([[0.0, 1.0], [2.0, -1000.0]]) == 0.5, "over all runs and tasks together"
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3.0, "of three scores none is left out"


def test_one_and_two_runs_have_no_interval() -> None:
    assert iqm_interval([2.0]) == Interval(2.0)
    assert iqm_interval([1.0, 3.0]) == Interval(2.0)
    assert str(iqm_interval([1.0, 3.0])) == "2"


def test_an_interval_is_the_same_for_the_same_scores_and_lies_within_them() -> None:
    scores = [1.0, 2.0, 3.0, 7.0, 9.0]
    found = iqm_interval(scores)
    assert found == iqm_interval(scores)
    assert found.low is not None and found.high is not None
    assert 1.0 <= found.low < found.mean < found.high <= 9.0
    assert str(Interval(3.0, 1.0, 7.5)) == "3 [1, 7.5]"


def test_the_bootstrap_is_stratified_so_easy_and_hard_tasks_do_not_widen_it() -> None:
    """Seeds that agree on every task leave no doubt, however far the tasks lie apart."""
    agreeing = np.tile([0.0, 10.0, 20.0, 100.0], (5, 1))
    found = iqm_interval(agreeing)
    assert (found.low, found.mean, found.high) == (15.0, 15.0, 15.0)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(100):
        found = iqm_interval(rng.normal(size=20))
        assert found.low is not None and found.high is not None
        inside += found.low <= 0.0 <= found.high
    assert 85 <= inside <= 99


def test_a_band_is_the_interval_at_every_point() -> None:
    curves = np.random.default_rng(2).normal(size=(5, 3))
    mean, low, high = iqm_band(curves)
    for point in range(3):
        alone = iqm_interval(curves[:, point])
        assert (mean[point], low[point], high[point]) == pytest.approx((alone.mean, alone.low, alone.high))
    mean, low, high = iqm_band(curves[:2])
    assert np.array_equal(low, mean) and np.array_equal(high, mean)


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_means_and_bounds_are_those_of_scipy(runs: int) -> None:
    tasks = np.random.default_rng(4).normal(size=(runs, 4))

    def statistic(*resampled: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return stats.trim_mean(np.concatenate(resampled, axis=axis), 0.25, axis=axis)

    found = iqm_interval(tasks)
    peer = stats.bootstrap(
        tuple(tasks.T), statistic, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert found.mean == pytest.approx(stats.trim_mean(tasks.ravel(), 0.25))
    assert (found.low, found.high) == pytest.approx((peer.low, peer.high))


def test_a_report_and_the_table_of_a_run_do_not_wait_for_scipy() -> None:
    code = "import sys; from utils.statistics import iqm_interval; iqm_interval([1.0, 2.0, 3.0])"
    command = [sys.executable, "-c", f"{code}; print('scipy' in sys.modules)"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"

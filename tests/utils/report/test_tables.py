"""The tables hold the numbers, for people and for programs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.utils.report.made_runs import make_run
from utils.report.comparison import Comparison, compare
from utils.report.tables import csv_files, main_table, report_text

RATES = {0.001: 1.0, 0.0003: 2.0}


def returns(rate: float, seed: int) -> list[list[list[float]]]:
    """[evaluation][task][episode] of one run: 3 evaluations, 4 tasks, 2 episodes."""
    rng = np.random.default_rng([seed, int(rate * 1e5)])
    return rng.normal(RATES[rate], size=(3, 4, 2)).round(4).tolist()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A sweep over two rates and three seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    for number, (seed, rate) in enumerate((seed, rate) for seed in range(3) for rate in RATES):
        make_run(folder / str(number), returns(rate, seed), seed=seed, algorithm__learning_rate=rate)
    return compare([folder])


def rows(comparison: Comparison, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_files(comparison)[name])))


def scores(rate: float) -> dict[str, list[float]]:
    """Every number of each run, from what was written into its folder and from nothing else."""
    found: dict[str, list[float]] = {"episode_1": [], "episode_2": [], "trial": [], "area": []}
    for seed in range(3):
        table = np.array(returns(rate, seed))
        trials = [sum(evaluation.mean(0)) for evaluation in table]
        found["episode_1"].append(sum(task[0] for task in table[-1]) / 4)
        found["episode_2"].append(sum(task[1] for task in table[-1]) / 4)
        found["trial"].append(trials[-1])
        found["area"].append((0.5 * trials[0] + trials[1] + 0.5 * trials[2]) / 2)
    return found


def test_every_number_of_a_sweep_is_that_of_an_independent_computation(comparison: Comparison) -> None:
    table = {float(row["setting"].partition("=")[2]): row for row in rows(comparison, "results.csv")}
    assert list(table) == list(RATES)
    for rate, row in table.items():
        assert (row["environment"], row["seeds"], row["runs"]) == ("PointRobot", "0 1 2", "3")
        assert (float(row["env_steps"]), float(row["minutes"])) == (3000, 0.5)
        for name, values in scores(rate).items():
            # Of three scores the interquartile mean cuts none.
            assert float(row[name]) == pytest.approx(sum(values) / 3)
            # scipy's bootstrap, one measure at a time, with another stream.
            bounds = stats.bootstrap(
                (values,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(9)
            ).confidence_interval
            spread = max(values) - min(values)
            assert float(row[f"{name}_low"]) == pytest.approx(bounds.low, abs=0.05 * spread)
            assert float(row[f"{name}_high"]) == pytest.approx(bounds.high, abs=0.05 * spread)
    (pair,) = rows(comparison, "improvement.csv")
    one, other = (scores(rate)["trial"] for rate in RATES)
    assert float(pair["probability"]) == pytest.approx(sum(a > b for a in one for b in other) / 9)


def test_the_runs_are_listed_with_the_numbers_that_the_results_come_from(comparison: Comparison) -> None:
    listed = rows(comparison, "runs.csv")
    assert len(listed) == 6 and {row["finished"] for row in listed} == {"True"}
    for rate in RATES:
        of_rate = [row for row in listed if row["setting"].endswith(f"={rate:g}")]
        for name, values in scores(rate).items():
            assert [float(row[name]) for row in of_rate] == pytest.approx(values)
    assert rows(comparison, "settings.csv") == [
        {
            "option": "algorithm.learning_rate",
            "PointRobot: algorithm.learning_rate=0.001": "0.001",
            "PointRobot: algorithm.learning_rate=0.0003": "0.0003",
        }
    ]


def test_the_table_for_people_shows_means_with_their_intervals(comparison: Comparison) -> None:
    text = main_table(comparison)
    (line,) = [line for line in text.splitlines() if "=0.0003" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    interval = comparison.intervals(comparison.settings[1])["episode_1"]
    assert cells[1] == str(interval) and "[" in cells[1]
    assert cells[-3:] == ["3,000", "0.5", "3"]
    assert "returns on held-out tasks" in text
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1


def test_of_fifty_episodes_the_table_shows_four_and_the_file_all(tmp_path: Path) -> None:
    table = [[[float(episode) for episode in range(50)]]] * 3
    make_run(tmp_path / "0", table)
    comparison = compare([tmp_path])
    titles = main_table(comparison).splitlines()[2]
    assert [f"episode {number} " in titles for number in (1, 2, 3, 25, 50)] == [True, True, False, True, True]
    (row,) = rows(comparison, "results.csv")
    assert float(row["episode_37"]) == 36 and row["episode_37_low"] == ""


def test_trials_of_one_episode_have_no_column_for_their_sum(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [[[1.0]]] * 3)
    assert "trial" not in main_table(compare([tmp_path]))


def test_runs_that_have_not_finished_are_starred(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [[[1.0]]])
    make_run(tmp_path / "1", [[[2.0]]] * 3, algorithm__name="SAC")
    make_run(tmp_path / "2", [[[2.0]]], algorithm__name="SAC", seed=1)
    lines = main_table(compare([tmp_path])).splitlines()
    assert [line.rstrip("| ").rpartition("| ")[2] for line in lines[-2:]] == ["1*", "1 of 2"]


def test_the_report_says_what_differs_and_shows_its_figures(comparison: Comparison) -> None:
    text = report_text(comparison, [("Learning curves", "learning.png")])
    assert "6 runs in" in text and "![Learning curves](learning.png)" in text
    assert "| algorithm.learning_rate | 0.001" in text and "P(X > Y)" in text


def test_over_several_environments_the_report_sums_up(tmp_path: Path) -> None:
    for number, (family, name) in enumerate((f, n) for f in ("Wind", "AntDir") for n in ("SAC", "TD3")):
        make_run(tmp_path / str(number), [[[1.0]]] * 3, env__family=family, algorithm__name=name)
    text = report_text(compare([tmp_path]), [])
    assert "## Over all environments" in text
    assert "| option         | Wind: algorithm=SAC |" in text


def test_of_many_settings_the_report_names_the_values_and_the_file_who_has_which(tmp_path: Path) -> None:
    for number in range(9):
        make_run(tmp_path / str(number), [[[1.0]]] * 3, algorithm__clip=number / 10)
    text = report_text(compare([tmp_path]), [])
    assert "| 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8 |" in text
    assert "Among the 8 settings with the highest returns." in text

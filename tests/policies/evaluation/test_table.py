"""Tables of an evaluation: means, their spread over tasks, the worst tasks, and several runs side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.evaluation.table import Levels, RunRow, curves_of, evaluation_table, runs_table, shown_episodes
from utils.statistics import iqm_interval

POINT_ROBOT = make_family("PointRobot").spec
RETURNS = [[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [-9.0, 2.0], [4.0, 8.0]]


def metrics_of(returns: list[list[float]], name: str = "held_out") -> dict[str, Any]:
    means = {
        f"eval/{name}/return_episode_{index + 1}": float(mean)
        for index, mean in enumerate(np.mean(returns, 0))
    }
    return {**means, f"eval/{name}/returns": returns}


def test_curves_are_read_by_list_and_episode() -> None:
    line = {
        "eval/held_out/return_episode_1": 1.0,
        "eval/held_out/return_episode_2": 2.0,
        "eval/train/return_episode_1": 3.0,
        "loss/q": 0.0,
    }
    assert curves_of(line) == {"held_out": [1.0, 2.0], "train": [3.0]}


def test_the_table_shows_oracle_and_random_where_known() -> None:
    metrics = {
        f"eval/held_out/{name}_episode_{index}": index / 4
        for name in ("return", "success")
        for index in (1, 2)
    }
    table = evaluation_table(metrics, POINT_ROBOT, Levels(POINT_ROBOT.reference)).splitlines()
    assert table[1].split() == ["held_out", "0.25", "0.50"]
    assert table[2].split()[-2:] == ["51.80", "51.80"] and table[3].split()[-1] == "1.20"
    assert table[-1].split() == ["held_out", "25%", "50%"]
    unknown = evaluation_table({"eval/train/return_episode_1": 1.0}, make_family("AntDir").spec, Levels())
    assert "oracle" not in unknown and "success" not in unknown


def test_a_mean_that_was_not_reported_comes_back_from_json_as_no_number() -> None:
    """JSON has no NaN, so a line of metrics has null there; the picture and the table leave it out."""
    curves = curves_of({"eval/held_out/return_episode_1": None, "eval/held_out/return_episode_2": 3.0})
    assert np.isnan(curves["held_out"][0]) and curves["held_out"][1] == 3.0


def test_the_spread_over_tasks_stands_below_the_mean_and_the_worst_tasks_are_named() -> None:
    lines = evaluation_table(metrics_of(RETURNS), make_family("AntDir").spec, Levels()).splitlines()
    intervals = [iqm_interval([row[episode] for row in RETURNS]) for episode in (0, 1)]
    assert lines[1].split() == ["held_out", "-0.40", "5.00"]
    for line, bound in zip(lines[2:5], ("mean", "low", "high"), strict=True):
        assert line.split()[-2:] == [f"{getattr(interval, bound):.2f}" for interval in intervals]
    assert lines[-1].endswith("by number (return of the trial): 3 (-7.00), 0 (4.00), 1 (6.00)")


def test_without_all_tasks_there_is_no_spread() -> None:
    returns = [*RETURNS, [math.nan, math.nan]]
    lines = evaluation_table(metrics_of(returns), make_family("AntDir").spec, Levels()).splitlines()
    assert lines[1].split() == ["held_out", "nan", "nan"]
    assert len(lines) == 3 and "3 (-7.00)" in lines[-1], "the worst of those that are known"


@pytest.mark.parametrize(
    ("episodes", "shown"), [(1, [1]), (8, list(range(1, 9))), (50, [1, 2, 5, 10, 20, 50]), (9, [1, 2, 5, 9])]
)
def test_of_many_episodes_some_have_a_column(episodes: int, shown: list[int]) -> None:
    assert [column + 1 for column in shown_episodes(episodes)] == shown
    table = evaluation_table(metrics_of([[1.0] * episodes] * 4), make_family("AntDir").spec, Levels())
    assert table.splitlines()[0].split()[3:] == [str(number) for number in shown]
    assert len({len(line) for line in table.splitlines()[:5]}) == 1


def test_several_runs_have_a_row_for_each_of_their_lists() -> None:
    both = metrics_of(RETURNS, "train") | metrics_of(RETURNS)
    rows = [
        RunRow("0", "last, 100", both, Levels()),
        RunRow("1", "best, 50", metrics_of(RETURNS[:1], "far"), Levels()),
    ]
    lines = runs_table(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "0", "0", "1"]
    assert str(iqm_interval([row[1] for row in RETURNS])) in lines[1]
    assert lines[3].split() == ["1", "best,", "50", "far", "0", "4", "0.00", "4.00"]


def test_parts_of_a_list_have_means_and_no_interval() -> None:
    """What every task returned is recorded by list, and not by part."""
    parts = {f"eval/held_out/return/easy_episode_{index}": float(index) for index in (1, 2)}
    rows = [RunRow(name, "last, 9", metrics_of(RETURNS) | parts, Levels()) for name in "01"]
    lines = runs_table(rows).splitlines()
    assert lines[2].split() == ["0", "last,", "9", "held_out/easy", "1.00", "2.00"] and len(lines) == 5


def test_several_runs_are_compared_with_levels_that_all_of_a_list_have() -> None:
    """Recorded with the family, or the mean of what each seed has measured on its own tasks."""
    one = Levels(measured={"held_out": {"oracle": [5.0, 6.0], "random": [0.0, 1.0]}})
    other = Levels(measured={"held_out": {"oracle": [7.0, 7.0]}})
    rows = [RunRow(name, "last, 9", metrics_of(RETURNS), of) for name, of in (("0", one), ("1", other))]
    *_, last = runs_table(rows).splitlines()
    assert last.split() == ["oracle,", "measured", "held_out", "6.00", "6.50"]
    assert "random" not in runs_table(rows), "known for one of the two"
    recorded = [row._replace(levels=Levels(POINT_ROBOT.reference)) for row in rows]
    assert [line.split()[-1] for line in runs_table(recorded).splitlines()[-2:]] == ["51.80", "1.20"]

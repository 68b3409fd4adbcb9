"""What services draw of a line: every number by a name of its own, and the spread of tables of returns."""

from __future__ import annotations

from utils.services.base import points


def test_lists_become_numbers_and_null_is_left_out() -> None:
    assert points({"x": 1, "lost": None, "many": [2, None, 3], "task": "a"}) == {
        "x": 1,
        "many/1": 2,
        "many/3": 3,
        "task": "a",
    }


def test_a_table_of_returns_becomes_its_spread_over_tasks_by_episode() -> None:
    values = {
        "eval/far/returns": [[1.0, 4.0], [3.0, None], [5.0, None]],
        "eval/far/successes": [[1.0], [0.0]],
    }
    found = points(values)
    assert {name: round(value, 3) for name, value in found.items() if not isinstance(value, str)} == {
        "eval/far/return_std_episode_1": 1.633,
        "eval/far/return_min_episode_1": 1.0,
        "eval/far/return_max_episode_1": 5.0,
        "eval/far/return_std_episode_2": 0.0,
        "eval/far/return_min_episode_2": 4.0,
        "eval/far/return_max_episode_2": 4.0,
    }


def test_an_episode_that_no_task_has_finished_has_no_spread() -> None:
    assert points({"eval/far/returns": [[1.0, None]]}) == {
        "eval/far/return_std_episode_1": 0.0,
        "eval/far/return_min_episode_1": 1.0,
        "eval/far/return_max_episode_1": 1.0,
    }

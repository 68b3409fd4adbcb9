"""Tasks of a service: vectors of numbers, and what a reset is told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.remote import pages
from envs.remote.tasks import TaskSource, task_arguments


def test_arguments_come_back_as_they_were_typed() -> None:
    source = TaskSource(task_arguments(['map=plain|"a b"|8|true', "wind=-1..1"], []), fixed={"size": 3})
    task = np.array([2.0, 0.25])
    assert source.reset_arguments(task, 7) == {"seed": 7, "size": 3, "map": 8, "wind": 0.25}
    values = [source.reset_arguments(np.array([i, 0.0]), 7)["map"] for i in range(4)]
    assert values == ["plain", "a b", 8, True] and source.split is Split.shared
    with pytest.raises(ValueError, match="map=4 is none of 0 to 3"):
        source.reset_arguments(np.array([4.0, 0.0]), 7)


def test_splits_that_share_a_choice_are_not_disjoint() -> None:
    assert TaskSource(task_arguments(["a=1|2"], ["a=2|3"])).split is Split.shared
    assert TaskSource(task_arguments(["a=1|2"], ["a=3"])).split is Split.disjoint


def test_the_task_api_has_as_many_tasks_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def post_json(url: str, page: str, data: dict[str, Any], headers: object) -> dict[str, int]:
        assert (url, page) == ("http://host", "maze/num_tasks")
        return {"num_tasks": {"train": 5, "test": 2}[data["split"]]}

    monkeypatch.setattr(pages, "post_json", post_json)
    source, rng = TaskSource(api="maze"), np.random.default_rng(0)
    tasks = source.sample(rng, 40, "test", "http://host", {})
    assert {tuple(task) for task in tasks} == {(1.0, 0.0), (1.0, 1.0)} and source.split is Split.disjoint
    assert source.reset_arguments(tasks[0], 7) == {"seed": 7, "split": "test", "index": int(tasks[0, 1])}

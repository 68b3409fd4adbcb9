"""Groups of tasks: the parts of a mixture, or levels of difficulty with about as many tasks each."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.make_env import make_family
from policies.curriculum import task_groups
from policies.curriculum.base import TrainingTasks
from policies.curriculum.task_groups import TaskGroups, problems_of_groups


@pytest.mark.parametrize("listed", [True, False])
def test_levels_are_ordered_by_difficulty_and_of_about_the_same_size(listed: bool) -> None:
    family = make_family("GridNavi", variant="hall", size=31)
    tasks = family.sample_tasks(np.random.default_rng(0), 30, "train")
    groups = TaskGroups(TrainingTasks(family, tasks if listed else None, 0), 3)
    assert groups.names == ("level_1", "level_2", "level_3")
    level = groups.of(tasks)
    assert np.array_equal(np.sort(level), level[np.argsort(tasks[:, 0])])
    assert min(np.bincount(level)) >= 9
    rng = np.random.default_rng(0)
    for number in range(3):
        drawn = np.stack([groups.draw(rng, number) for _ in range(50)])
        assert (groups.of(drawn) == number).all() and len(np.unique(drawn[:, 0])) > 5


def test_equal_difficulties_stand_in_one_level() -> None:
    family = make_family("GridNavi", size=3)  # goals at distances 2, 2, 3, 3 and 4
    tasks = family.sample_tasks(np.random.default_rng(0), 5, "train")
    groups = TaskGroups(TrainingTasks(family, tasks, 0), 20)
    assert len(groups.names) == 3
    distance = tasks.sum(1)
    assert groups.of(tasks).tolist() == (distance - 2).tolist()


def test_a_group_without_tasks_in_the_list_is_drawn_from_the_family() -> None:
    family = make_family("Mixture")
    tasks = family.sample_tasks(np.random.default_rng(0), 20, "train")
    groups = TaskGroups(TrainingTasks(family, tasks[tasks[:, 0] == 0], 0), 3)
    assert groups.draw(np.random.default_rng(0), 1)[0] == 1


def test_a_group_that_never_comes_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_groups, "MOST_TRIES", 2)
    family = make_family(
        "Mixture", parts={"often": "GridNavi", "never": {"family": "GridNavi", "weight": 1e-9}}
    )
    with pytest.raises(ValueError, match="No task of never came up in 32 draws"):
        TaskGroups(TrainingTasks(family, None, 0), 3).draw(np.random.default_rng(0), 1)


def test_a_family_without_an_order_is_refused_in_one_sentence() -> None:
    (problem,) = problems_of_groups("stages", make_family("Wind"))
    assert "curriculum=stages needs tasks" in problem and "env=Wind are not" in problem
    assert not list(problems_of_groups("stages", make_family("GridNavi")))
    assert not list(problems_of_groups("stages", make_family("Mixture")))

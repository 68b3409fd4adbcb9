"""Task lists: fixed by the seed, saved, named honestly; and those of one's own from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.base import Split
from envs.meta.make_env import make_family
from policies.evaluation.lists import CHANGED, TaskLists, held_out_name, read_tasks
from tests.toys import CountingConfig, CountingFamily
from utils.options import OptionError


def test_lists_are_fixed_by_the_seed() -> None:
    family = make_family("PointRobot", num_train_tasks=8, num_eval_tasks=5)
    first, again, other = (TaskLists.draw(family, seed) for seed in (0, 0, 1))
    assert first.train is not None and again.train is not None and other.train is not None
    np.testing.assert_array_equal(first.train, again.train)
    assert not np.array_equal(first.train, other.train)
    assert set(first.evaluation) == {"train", "held_out"}
    np.testing.assert_array_equal(first.evaluation["train"], first.train[:5])


def test_lists_that_are_equal_are_one_list_and_a_family_of_one_task_is_evaluated_once() -> None:
    one = TaskLists.draw(make_family("Gymnasium", id="CartPole-v1"), 0)
    assert list(one.evaluation) == ["in_distribution"] and one.test == "in_distribution"
    # The same tasks in another order, or in lists of other lengths, are two lists.
    both = TaskLists.draw(make_family("AntDir", num_eval_tasks=40), 0)
    assert list(both.evaluation) == ["train", "in_distribution"]
    assert not np.array_equal(both.evaluation["train"], both.evaluation["in_distribution"])


def test_only_disjoint_splits_are_called_held_out() -> None:
    assert held_out_name(make_family("AntDir").spec) == "in_distribution"
    assert held_out_name(make_family("AntDir", variant="circle").spec) == "held_out"


def test_a_family_that_lies_about_its_splits_is_caught() -> None:
    class Liar(CountingFamily):
        def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> np.ndarray:
            return np.zeros((n, 2))

    family = Liar(CountingConfig(num_train_tasks=2))
    object.__setattr__(family.spec, "split", Split.disjoint)
    with pytest.raises(ValueError, match="disjoint"):
        TaskLists.draw(family, 0)


def test_lists_are_saved_for_readers(tmp_path: Path) -> None:
    lists = TaskLists.draw(make_family("PointRobot", num_eval_tasks=3), 0)
    lists.save(tmp_path / "tasks.json")
    saved = json.loads((tmp_path / "tasks.json").read_text())
    assert saved["training"] is None
    assert saved["evaluation_held_out"] == lists.evaluation["held_out"].tolist()


def drawn(**options: Any) -> TaskLists:
    return TaskLists.draw(make_family("PointRobot", num_eval_tasks=5, **options), 0)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"max_episode_steps": 9, "radius": 0.4}, ["train", "held_out"]),
        ({"circle_radius": 2.0}, [CHANGED]),
        ({"test_circle_radius": 2.0}, ["train", CHANGED]),
    ],
)
def test_tasks_of_other_ranges_are_neither_called_trained_nor_held_out(
    options: dict[str, Any], names: list[str]
) -> None:
    here = drawn(**options)
    named = here.beside(drawn())
    assert list(named.evaluation) == names
    assert named.test == names[-1]
    np.testing.assert_array_equal(named.evaluation[named.test], here.evaluation["held_out"])


def test_a_file_is_one_list_or_several_by_name(tmp_path: Path) -> None:
    spec = make_family("PointRobot").spec
    (tmp_path / "far.json").write_text("[[0, 1], [2.5, -1]]")
    found = read_tasks(tmp_path / "far.json", spec)
    assert {name: tasks.tolist() for name, tasks in found.items()} == {"far": [[0.0, 1.0], [2.5, -1.0]]}

    lists = drawn()
    lists.save(tmp_path / "tasks.json")
    of_a_run = read_tasks(tmp_path / "tasks.json", spec)
    assert list(of_a_run) == ["evaluation_train", "evaluation_held_out"], "there is no fixed list of training"
    np.testing.assert_array_equal(of_a_run["evaluation_held_out"], lists.evaluation["held_out"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read as JSON"),
        ("[[0, 1], [0", "cannot be read as JSON"),
        ("{}", "holds no list of tasks"),
        ("[]", r"the list 'bad' should be a list of tasks, such as \[\[0.0, 1.0\]"),
        ("7", "should be a list of tasks"),
        (
            "[[0, 1], [0.5]]",
            r"task 1 should be a list of 2 finite numbers.* PointRobot is, and it is \[0.5",
        ),
        ("[[0, NaN]]", "task 0 should be"),
        ('[[0, "a"]]', "task 0 should be"),
        ("[[0, true]]", "task 0 should be"),
        (f"[[0, 1{'0' * 400}]]", "task 0 should be"),
        ('{"a/b": [[0, 1]]}', "the list 'a/b' needs another name"),
    ],
)
def test_a_file_that_holds_no_tasks_is_one_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "bad.json").write_text(text)
    with pytest.raises(OptionError, match=sentence) as caught:
        read_tasks(tmp_path / "bad.json", make_family("PointRobot").spec)
    assert "\n" not in str(caught.value)

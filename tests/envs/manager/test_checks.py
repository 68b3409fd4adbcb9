"""What is asked of a manager is checked first (the table of wrong calls is in test_stepping.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.backends.base import BackendConfig
from envs.manager.checks import (
    backend_name,
    checked_action,
    checked_actions,
    checked_seed,
    checked_starts,
    checked_task,
    chosen_slots,
    whole_number,
)
from envs.parallel_env_manager import ParallelEnvManager, Start
from tests.toys import CountingFamily

SPEC = CountingFamily().spec


def test_a_backend_that_is_not_known_is_one_sentence_with_the_nearest() -> None:
    for workers in (1, 2):
        with pytest.raises(ValueError, match=r"^backend=proces is not known\. Did you mean 'process'\?$"):
            ParallelEnvManager(CountingFamily(), 2, num_workers=workers, backend=BackendConfig(name="proces"))
    assert [backend_name(*asked) for asked in (("auto", 1), ("auto", 2), ("thread", 1))] == [
        "serial",
        "process",
        "thread",
    ]


@pytest.mark.parametrize(
    "given", [3, np.int8(3), np.uint64(3), np.array(3)], ids=lambda given: type(given).__name__
)
def test_whole_numbers_are_those_of_python_and_numpy(given: Any) -> None:
    found = whole_number(given, "It")
    assert found == 3 and type(found) is int
    assert checked_seed(np.uint64(2**64 - 1)) == 2**64 - 1


@pytest.mark.parametrize(
    "given", [3.0, np.float64(3), True, np.True_, np.array(True), "3", None, [3]], ids=repr
)
def test_what_would_have_to_be_cut_or_read_is_no_whole_number(given: Any) -> None:
    with pytest.raises(ValueError, match="It is a whole number, not "):
        whole_number(given, "It")


def test_slots_come_in_any_sequence_and_keep_their_order() -> None:
    for slots in ([2, 0], (2, 0), np.array([2, 0]), iter([2, 0])):
        assert chosen_slots(slots, 3).tolist() == [2, 0]  # pyright: ignore[reportArgumentType]
    assert chosen_slots(None, 3).tolist() == [0, 1, 2]


def test_a_start_takes_whatever_makes_a_task_and_keeps_its_own_copy() -> None:
    task: Any = np.array([0.25, 0.5])
    numbers: Any = [1, 2]
    seed: Any = np.uint64(3)
    starts: Any = {0: Start(numbers, seed), np.int64(1): Start(task, 4)}
    found = checked_starts(starts, SPEC, 2)
    assert checked_task(task, SPEC) is not task
    with ParallelEnvManager(CountingFamily(), 3) as manager:
        rows = manager.step(np.zeros((3, 2), np.float32), starts)
        task[:] = 9.0
        assert (
            rows.task[:2].tolist()
            == [found[0].task.tolist(), found[1].task.tolist()]
            == [[1.0, 2.0], [0.25, 0.5]]
        )
        assert (
            manager.info_of(0)["valid"]
            and not manager.info_of(2)["valid"]
            and not manager.info_of(0)["dropped"]
        )


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3, start=1), [1, 3, 2, 1], [1, 3, 0, 1]),
        (spaces.MultiDiscrete([2, 5]), [[1, 4]] * 4, [[1, 4]] * 2 + [[2, 4]] * 2),
    ],
    ids=str,
)
def test_discrete_actions_are_checked_too(space: Any, good: list[Any], bad: list[Any]) -> None:
    assert checked_actions(good, space, 4).tolist() == good
    assert checked_action(good[0], space).tolist() == good[0]
    for wrong, sentence in (
        (bad, "The action of slot 2 is not in"),
        (np.array(good, np.float32), "are whole numbers, not float32"),
    ):
        with pytest.raises(ValueError, match=sentence):
            checked_actions(wrong, space, 4)
    with pytest.raises(ValueError, match=r"The action is not in .*: "):
        checked_action(bad[2], space)

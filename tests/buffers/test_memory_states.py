"""MemoryStates: what is written before a row comes back before it, and takes no more memory than it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from buffers.memory_states import MemoryStates

LEAVES = {"hidden": ((2, 3), np.dtype(np.float32)), "count": ((), np.dtype(np.int64))}


def made(every: int, *, capacity: int = 4, rows: int = 10) -> MemoryStates:
    return MemoryStates(LEAVES, every=every, capacity_trials=capacity, rows_per_trial=rows)


def known(place: NDArray[np.int64], row: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    number = 100 * (place + 1) + row
    return {"hidden": np.tile(number[:, None, None], (1, 2, 3)).astype(np.float32), "count": number}


def written(every: int) -> MemoryStates:
    states = made(every)
    for row in range(every, 10, every):
        states.write(np.arange(4), np.full(4, row), known(np.arange(4), np.full(4, row)))
    return states


@pytest.mark.parametrize("every", [1, 3, 5, 9, 10, 50])
def test_what_is_written_before_a_row_comes_back_and_before_the_first_row_there_is_nothing(
    every: int,
) -> None:
    place, row = (grid.flatten() for grid in np.meshgrid(np.arange(4), np.arange(0, 10, every)))
    found, expected = written(every).before(place, row), known(place, row)
    for name, values in found.items():
        np.testing.assert_array_equal(values[row > 0], expected[name][row > 0])
        assert not values[row == 0].any() and values.dtype == LEAVES[name][1]


def test_a_row_before_which_nothing_is_kept_is_refused() -> None:
    with pytest.raises(ValueError, match=r"before every 3th row, not before rows \[4\]"):
        written(3).before(np.array([0, 1]), np.array([3, 4]))


@pytest.mark.parametrize("every", [1, 3, 50])
def test_what_is_exported_comes_back_and_trials_that_were_given_up_have_nothing(every: int) -> None:
    place, lengths = np.array([2, 0, 3]), np.array([10, 0, 5])
    exported, restored = written(every).export(place, lengths), made(every)
    assert {name: len(values) for name, values in exported.items()} == dict.fromkeys(
        ("state.hidden", "state.count"), 9 // every + 4 // every
    )
    restored.restore(exported, np.array([1, 2, 0]), lengths)
    for old, new, length in ((2, 1, 10), (3, 0, 5)):
        row = np.arange(0, length, every)
        before = (
            states.before(np.full(len(row), at), row)
            for states, at in ((written(every), old), (restored, new))
        )
        assert all(np.array_equal(a, b) for a, b in zip(*(one.values() for one in before), strict=True))


@pytest.mark.parametrize("every", [1, 3, 9, 10])
def test_bytes_are_known_beforehand(every: int) -> None:
    sizes = {"capacity_trials": 7, "rows_per_trial": 10}
    held = sum(values.nbytes for values in MemoryStates(LEAVES, every=every, **sizes)._leaves.values())
    assert MemoryStates.bytes_needed(LEAVES, every=every, **sizes) == held == 7 * (9 // every) * (6 * 4 + 8)

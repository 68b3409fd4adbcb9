"""MemoryStates: what is written before a row comes back before it, and takes no more memory than it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from buffers.memory_states import MemoryStates

LEAVES = {"hidden": ((2, 3), np.dtype(np.float32)), "count": ((), np.dtype(np.int64))}
# Trials of ten rows and of five, close together, and where each begins.
TRIALS = [(0, 10), (10, 5), (15, 10), (25, 10)]


def known(at: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    return {"hidden": np.tile(at[:, None, None], (1, 2, 3)).astype(np.float32), "count": at}


@pytest.mark.parametrize("every", [1, 3, 4, 5, 9, 10, 50])
def test_what_is_written_before_a_row_comes_back_and_before_the_first_row_there_is_nothing(
    every: int,
) -> None:
    states = MemoryStates(LEAVES, every=every, num_rows=35)
    for first, length in TRIALS:
        for time in range(every, length, every):
            at = np.array([first + time])
            states.write(at, known(at))
    for first, length in TRIALS:
        time = np.arange(0, length, every)
        found = states.before(first + time, time)
        for name, values in found.items():
            np.testing.assert_array_equal(values[1:], known(first + time)[name][1:])
            assert not values[:1].any() and values.dtype == LEAVES[name][1]


def test_a_row_before_which_nothing_is_kept_is_refused() -> None:
    states = MemoryStates(LEAVES, every=3, num_rows=20)
    with pytest.raises(ValueError, match=r"before every 3th row, not before rows \[4\]"):
        states.before(np.array([13, 4]), np.array([3, 4]))


@pytest.mark.parametrize("every", [1, 3, 9, 10, 100])
def test_bytes_are_known_beforehand(every: int) -> None:
    held = sum(values.nbytes for values in MemoryStates(LEAVES, every=every, num_rows=70)._leaves.values())
    assert MemoryStates.bytes_needed(LEAVES, every=every, num_rows=70) == held
    assert held == -(-70 // every) * (6 * 4 + 8)

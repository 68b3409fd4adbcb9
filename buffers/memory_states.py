"""MemoryStates: the memory states of an actor before some rows of each trial, where windows may start.

Which memory it is, nothing here knows: a state is a dict of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Name -> (shape, type) of all that a memory carries from row to row, for one slot.
Leaves = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


class MemoryStates:
    """The state before each row of a trial whose number in it `every` divides, but for row 0.

    The state before row 0 is all zeros. So a trial of n rows has (n - 1) // every states. The one before a
    row stands in cell r // every, r being the number of that row in storage: two of a trial are `every` rows
    apart, and those of different trials more. In a ring that holds if `every` divides its size.
    """

    def __init__(self, leaves: Leaves, *, every: int, num_rows: int) -> None:
        self.every, self.names = every, tuple(leaves)
        self._leaves = {
            name: np.zeros((_cells(num_rows, every), *shape), dtype)
            for name, (shape, dtype) in leaves.items()
        }

    @staticmethod
    def bytes_needed(leaves: Leaves, *, every: int, num_rows: int) -> int:
        """Memory of the states of so many rows."""
        per_state = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in leaves.values())
        return _cells(num_rows, every) * per_state

    def write(self, at: NDArray[np.int64], state: Mapping[str, NDArray[Any]]) -> None:
        """state[...][i] is the state before row at[i] of storage."""
        for name, values in self._leaves.items():
            values[at // self.every] = state[name]

    def read(self, at: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """[B, ...] the states before these rows of storage."""
        return {name: values[at // self.every] for name, values in self._leaves.items()}

    def before(self, at: NDArray[np.int64], time: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """[B, ...] the states before rows `at` of storage, which are rows `time` of their trials."""
        between = time % self.every > 0
        if between.any():
            raise ValueError(
                f"States are stored before every {self.every}th row, "
                f"not before rows {np.unique(time[between]).tolist()}."
            )
        states = self.read(at)
        for values in states.values():
            values[time == 0] = 0
        return states


def _cells(num_rows: int, every: int) -> int:
    return -(-num_rows // every)

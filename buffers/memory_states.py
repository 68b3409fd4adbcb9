"""States: what an actor remembered before some rows of each trial, for windows to start from; which memory it
is, nobody here knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Leaves = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name -> (shape, type) of all that a memory carries from row to row, for one slot."""


class States:
    """The state before each row whose number `every` divides, the first row apart: before that, all is zero."""

    def __init__(self, leaves: Leaves, *, every: int, capacity_trials: int, rows_per_trial: int) -> None:
        self.every = every
        self._per_trial = _kept(rows_per_trial, every)
        self._leaves = {
            name: np.zeros((capacity_trials * self._per_trial, *shape), dtype)
            for name, (shape, dtype) in leaves.items()
        }

    @staticmethod
    def bytes_needed(leaves: Leaves, *, every: int, capacity_trials: int, rows_per_trial: int) -> int:
        """Memory of all of them."""
        one = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in leaves.values())
        return capacity_trials * _kept(rows_per_trial, every) * one

    def write(
        self, place: NDArray[np.int64], row: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is what was remembered before row row[i] of the trial at place[i]; all these rows are
        of those that are kept.
        """
        at = self._at(place, row)
        for name, values in self._leaves.items():
            values[at] = state[name]

    def before(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """[B, ...] what was remembered before these rows."""
        if (row % self.every).any():
            raise ValueError(
                f"States are kept before every {self.every}th row, not before rows {np.unique(row[row % self.every > 0]).tolist()}."
            )
        at, first = np.maximum(self._at(place, row), 0), row == 0
        found = {
            name: np.take(values, at, axis=0)
            if len(values)
            else np.zeros((len(at), *values.shape[1:]), values.dtype)
            for name, values in self._leaves.items()
        }
        for values in found.values():
            values[first] = 0
        return found

    def export(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Those of trials of so many rows, one after another."""
        at = self._all_of(place, lengths)
        return {f"state.{name}": values[at] for name, values in self._leaves.items()}

    def restore(
        self, segment: Mapping[str, NDArray[Any]], place: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        """Put the last of what was exported back: that of trials of so many rows."""
        at = self._all_of(place, lengths)
        for name, values in self._leaves.items():
            found = segment[f"state.{name}"]
            values[at] = found[len(found) - len(at) :]

    def _at(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
        return place * self._per_trial + row // self.every - 1

    def _all_of(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        count = np.maximum(lengths - 1, 0) // self.every
        return np.repeat(place * self._per_trial - (np.cumsum(count) - count), count) + np.arange(count.sum())


def _kept(rows: int, every: int) -> int:
    """How many of a trial's rows have a state."""
    return (rows - 1) // every

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
    """The state before each row whose number `every` divides.

    Row 0 is not stored: the state before it is all zeros. So a trial of n rows has (n - 1) // every states,
    those before rows every, 2 every, ..., and they stand one after another.
    """

    def __init__(self, leaves: Leaves, *, every: int, capacity_trials: int, rows_per_trial: int) -> None:
        self.every = every
        self._per_trial = _states_of(rows_per_trial, every)
        self._leaves = {
            name: np.zeros((capacity_trials * self._per_trial, *shape), dtype)
            for name, (shape, dtype) in leaves.items()
        }

    @staticmethod
    def bytes_needed(leaves: Leaves, *, every: int, capacity_trials: int, rows_per_trial: int) -> int:
        """Memory of all states."""
        per_state = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in leaves.values())
        return capacity_trials * _states_of(rows_per_trial, every) * per_state

    def write(
        self, place: NDArray[np.int64], row: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is the state before row row[i] of the trial at place[i]; `every` divides row[i]."""
        at = self._at(place, row)
        for name, values in self._leaves.items():
            values[at] = state[name]

    def before(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """[B, ...] the states before these rows."""
        between = row % self.every > 0
        if between.any():
            raise ValueError(
                f"States are stored before every {self.every}th row, "
                f"not before rows {np.unique(row[between]).tolist()}."
            )
        at = np.maximum(self._at(place, row), 0)
        states: dict[str, NDArray[Any]] = {}
        for name, values in self._leaves.items():
            # Where trials are too short for a stored state there is none to take, and all rows are row 0.
            states[name] = np.zeros((len(at), *values.shape[1:]), values.dtype)
            if len(values):
                np.take(values, at, axis=0, out=states[name])
            states[name][row == 0] = 0
        return states

    def export(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The states of trials of so many rows, one after another."""
        at = self._all_of(place, lengths)
        return {f"state.{name}": values[at] for name, values in self._leaves.items()}

    def restore(
        self, segment: Mapping[str, NDArray[Any]], place: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        """Put exported states back: those of the last trials of the segment, which have so many rows."""
        at = self._all_of(place, lengths)
        for name, values in self._leaves.items():
            exported = segment[f"state.{name}"]
            values[at] = exported[len(exported) - len(at) :]

    def _at(self, place: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the state before a row stands; for row 0 that is no state of the trial."""
        return place * self._per_trial + row // self.every - 1

    def _all_of(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where all states of these trials stand, one trial after another."""
        # For each trial the first place, repeated as often as it has states, and then counted up.
        count = np.maximum(lengths - 1, 0) // self.every
        return np.repeat(place * self._per_trial - (np.cumsum(count) - count), count) + np.arange(count.sum())


def _states_of(rows: int, every: int) -> int:
    """The number of states that a trial of so many rows has."""
    return (rows - 1) // every

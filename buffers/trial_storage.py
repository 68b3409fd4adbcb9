"""TrialStorage: the rows of trials, and the memory states before some of them, by row numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from buffers.memory_states import Leaves, MemoryStates
from buffers.stored_rows import Columns, RowFlags, StoredRows, bytes_per_row
from buffers.windows import state_rows, trial_rows

# Rows of trials one after another, by column; the length of each trial; and their states.
Segment = Mapping[str, NDArray[Any]]


class TrialStorage:
    """So many rows in a ring: row number `num_rows` is row 0. Which trials are where, its owner knows."""

    def __init__(
        self,
        columns: Columns,
        num_rows: int,
        *,
        states: Leaves | None = None,
        state_every: int = 0,
        device: str = "cpu",
        copied: bool = False,
    ) -> None:
        # States need a ring whose size `state_every` divides.
        self.num_rows = num_rows + -num_rows % (state_every or 1)
        self.rows = StoredRows(columns, self.num_rows, device=device, copied=copied)
        self.states: MemoryStates | None = None
        if state_every:
            self.states = MemoryStates(states or {}, every=state_every, num_rows=self.num_rows)

    @staticmethod
    def bytes_needed(columns: Columns, num_rows: int, *, states: Leaves | None, state_every: int) -> int:
        """Memory of a storage of these sizes."""
        num_rows += -num_rows % (state_every or 1)
        needed = num_rows * bytes_per_row(columns.values())
        if state_every:
            needed += MemoryStates.bytes_needed(states or {}, every=state_every, num_rows=num_rows)
        return needed

    def read(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The trials of so many rows that begin there, as a segment."""
        at = trial_rows(first, lengths, self.num_rows)
        found = {"lengths": lengths} | {name: values[at] for name, values in self.rows.columns.items()}
        if self.states is not None:
            states = self.states.read(state_rows(first, lengths, self.num_rows, every=self.states.every))
            found |= {f"state.{name}": values for name, values in states.items()}
        return found

    def put(self, first: NDArray[np.int64], lengths: NDArray[np.int64], segment: Segment) -> None:
        """Let the last trials of a segment, of so many rows, begin there."""
        at = trial_rows(first, lengths, self.num_rows)
        self.rows.put(at, {name: _last(segment[name], len(at)) for name in self.rows.columns})
        if self.states is not None:
            at = state_rows(first, lengths, self.num_rows, every=self.states.every)
            self.states.write(
                at, {name: _last(segment[f"state.{name}"], len(at)) for name in self.states.names}
            )

    def ended(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether these rows ended an episode."""
        return self.rows.columns["flags"][at % self.num_rows] & RowFlags.ENDED > 0


def _last(values: NDArray[Any], count: int) -> NDArray[Any]:
    return values[len(values) - count :]

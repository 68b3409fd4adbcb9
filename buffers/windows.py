"""Windows: which rows of stored trials a batch takes, as row numbers in [T, B]; no row is read here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Rows after a training row that its target may read (policies/returns.py).
LOOK_AHEAD = 2


@dataclass(frozen=True)
class RowIndex:
    """[T, B] numbers of stored rows, whether each is valid, and whether it lies where rows may train."""

    at: NDArray[np.int64]
    valid: NDArray[np.bool_]
    may_train: NDArray[np.bool_]
    # [B] the row in front of each column, which has the action that led to its first row. Where a trial
    # starts there it is any row, for no action has led there.
    before: NDArray[np.int64]


def draw_windows(
    rng: np.random.Generator,
    batch_size: int,
    window: int,
    *,
    every: int,
    alive: NDArray[np.int64],
    lengths: NDArray[np.int64],
    ended: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw (place, first row) of windows of the trials at the places `alive`, by rejection.

    Windows begin up to window-1 rows before the trial, or its first rows would be in too few. All begin at
    multiples of `every`, which divides `window`: so each row is in window / every of them.
    """
    place, start = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
    todo = np.arange(batch_size)
    latest = lengths.max() - 1
    while len(todo):
        # Draw any trial, and any start that the longest trial has ...
        place[todo] = alive[rng.integers(len(alive), size=len(todo))]
        start[todo] = every * rng.integers(1 - window // every, (latest - 1) // every + 1, size=len(todo))
        # ... and again where the trial is shorter, or where a transition would start at an ended row.
        rejected = start[todo] >= lengths[place[todo]] - 1
        if window == 1:
            rejected |= ended(place[todo], start[todo])
        todo = todo[rejected]
    return place, start


def window_rows(
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    start: NDArray[np.int64],
    window: int,
    *,
    begin: NDArray[np.int64],
    ring: int,
) -> RowIndex:
    """Rows [begin, start + window) of trials, and those that their targets look ahead to.

    The trials have so many rows from row `first` of storage on, which is a ring. Rows from `start` on may
    train; those from `begin` to `start` are the burn-in, which a memory only reads.
    """
    last_training = start + window
    stop = np.minimum(last_training + LOOK_AHEAD, lengths)
    time = begin + np.arange((stop - begin).max())[:, None]
    valid = time < stop
    # A row of the padding repeats the last row of its window: it has to be some row of storage.
    at = (first + np.minimum(time, stop - 1)) % ring
    before = (first + np.maximum(begin - 1, 0)) % ring
    return RowIndex(at, valid, (start <= time) & (time < last_training), before)


def trial_rows(first: NDArray[np.int64], lengths: NDArray[np.int64], ring: int) -> NDArray[np.int64]:
    """The row numbers of trials of so many rows, one trial after another."""
    begins = np.cumsum(lengths) - lengths
    return (np.repeat(first - begins, lengths) + np.arange(lengths.sum())) % ring


def state_rows(
    first: NDArray[np.int64], lengths: NDArray[np.int64], ring: int, *, every: int
) -> NDArray[np.int64]:
    """The row numbers of rows every, 2 every, ... of trials of so many rows, one trial after another."""
    count = np.maximum(lengths - 1, 0) // every
    begins = np.cumsum(count) - count
    return (np.repeat(first, count) + every * (np.arange(count.sum()) - np.repeat(begins, count) + 1)) % ring


def packed_rows(
    first: NDArray[np.int64], lengths: NDArray[np.int64], ring: int, *, packed: bool = True
) -> RowIndex:
    """All rows of these trials, in as few columns as `pack` fills with them; all may train.

    Without `packed` each trial has a column of its own.
    """
    column, start = pack(lengths) if packed else (np.arange(len(lengths)), np.zeros_like(lengths))
    shape = (lengths.max(), column.max() + 1)
    at, valid = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    # For every row of every trial, one trial after another: its time, and the cell [T, B] where it goes.
    time = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    cells = np.repeat(start, lengths) + time, np.repeat(column, lengths)
    at[cells] = trial_rows(first, lengths, ring)
    valid[cells] = True
    return RowIndex(at, valid, valid, at[0])


def pack(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(column, first row) of trials of these lengths, in columns as high as the longest trial.

    The longest trial comes first, and each goes into the first column that has room for it.
    """
    column, start, filled = np.empty_like(lengths), np.empty_like(lengths), np.zeros_like(lengths)
    for trial in np.argsort(-lengths, kind="stable"):
        first = int(np.argmax(filled + lengths[trial] <= lengths.max()))
        column[trial], start[trial] = first, filled[first]
        filled[first] += lengths[trial]
    return column, start

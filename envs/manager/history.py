"""The history of every running trial: what is needed to re-run it, and to see that it comes out the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Commands
from envs.base import Rows, Slots, arrays_of
from envs.layout import Layout


class TrialHistory:
    """The commands that each slot's trial was sent, a digest of its rows, and a copy of its last row.

    All arrays are over the N slots of the manager. The commands are kept in full, since a re-run needs each
    of them; of the rows a digest is enough, since they are only compared.
    """

    def __init__(self, layout: Layout, rows: Rows, commands: Commands, longest: int) -> None:
        """`longest`: the most commands that a trial can have, which is the most rows."""
        num_slots = len(rows.reward)
        self._commands = commands
        # What was sent: task and seed of a reset follow from the trial, so reset and action are enough.
        # [N] commands that the slot's trial was sent, one that is still pending included.
        self.length = np.zeros(num_slots, np.int64)
        self._was_reset = np.zeros((num_slots, longest), np.bool_)
        self._actions = np.zeros((num_slots, longest, *commands.action.shape[1:]), commands.action.dtype)
        # What came back, now and in a re-run.
        self._shown, self.reshown = Digest(layout, rows), Digest(layout, rows)
        # The live rows of a slot may hold anything after a fault, so its last good row is copied.
        self._live, self._last = rows.of_shard, rows.copy().of_shard

    # -- recording -------------------------------------------------------------------------------------------

    def begin(self, slots: NDArray[np.int64]) -> None:
        """New trials are about to start in these slots: what was recorded of the old ones is forgotten."""
        self.length[slots] = 0
        self._shown.begin(slots)

    def posted(self, slots: NDArray[np.int64]) -> None:
        """Record the commands that these slots are about to be sent."""
        position = self.length[slots]
        self._was_reset[slots, position] = self._commands.reset[slots]
        self._actions[slots, position] = self._commands.action[slots]
        self.length[slots] = position + 1

    def arrived(self, slots: Slots) -> None:
        """Record the rows of these slots, which have just arrived."""
        for last, live in zip(self._last, self._live, strict=True):
            last[slots] = live[slots]
        self._shown.add(slots)

    # -- re-running ------------------------------------------------------------------------------------------

    def sent(self, slots: NDArray[np.int64], position: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """The command at this position of these slots' trials: whether it was a reset, and its action."""
        return self._was_reset[slots, position], self._actions[slots, position]

    def rerun_is_the_same(self, slot: int) -> bool:
        """Whether all rows of the re-run are those that the trial has shown before."""
        return bool(self._shown.value[slot] == self.reshown.value[slot])

    def show_last_row(self, slot: int) -> None:
        """Put the last row of the trial back into the live rows, as it was delivered."""
        for last, live in zip(self._last, self._live, strict=True):
            live[slot] = last[slot]


class Digest:
    """[N] a number for all that the environments have shown in a trial so far, row after row, bit for bit.

    It is a polynomial in `_STEP`: value = value * _STEP + (sum of the row's words, each times an odd weight),
    modulo 2**64. A changed bit of any row changes the number, and so does another order of the rows.
    """

    def __init__(self, layout: Layout, rows: Rows) -> None:
        # What an environment alone writes: the task and the flag of the manager's layout are left out.
        own = layout.part(rows, 0, len(rows.reward))
        rng = np.random.default_rng(0)
        self._words: list[tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.uint64]]] = []
        for array in (own.terminated[:, None], own.reward[:, None], *arrays_of(own.obs)):
            # Read the bytes of a row as the widest unsigned words that divide them: fewer words, less work.
            flat = array.reshape(len(array), -1)
            row_bytes = flat.shape[1] * flat.itemsize
            size = next(size for size in (8, 4, 2, 1) if row_bytes % size == 0)
            words = flat.view(np.dtype(f"u{size}"))
            # Trap: where `reshape` cannot make a view it copies, and a copy shows the first row for ever.
            assert np.shares_memory(words, array) or not array.size, "the digest needs a view of the rows"
            # An odd weight is invertible modulo 2**64, so a single changed word never goes unseen.
            weights = rng.integers(2**64, size=words.shape[1], dtype=np.uint64) | np.uint64(1)
            self._words.append((words, weights))
        self.value = np.zeros(len(rows.reward), np.uint64)

    def begin(self, slots: NDArray[np.int64]) -> None:
        """Nothing has been shown yet in the trials of these slots."""
        self.value[slots] = 0

    def add(self, slots: Slots) -> None:
        """Take in the rows of these slots that are there now."""
        total = self.value[slots] * _STEP
        for words, weights in self._words:
            total += (words[slots] * weights).sum(1, dtype=np.uint64)
        self.value[slots] = total


# An odd multiplier, so that the order of rows matters (Knuth, TAOCP 2, 3.3.4).
_STEP = np.uint64(6364136223846793005)

"""`min_ready`: a round goes on with the slots that are ready first, and every slot keeps its deadline."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, Fault


class FirstReady:
    """Waits for at least `min_ready` slots of a round.

    A slot that is late has no caller that waits for it alone, but the deadline of a call holds for it too: so
    the time of each post is remembered here.
    """

    def __init__(self, backend: Backend, min_ready: int, timeout: float, num_slots: int) -> None:
        self._backend, self._min_ready, self._timeout = backend, min_ready, timeout
        self._posted_at = np.zeros(num_slots)

    def posted(self, slots: NDArray[np.int64]) -> None:
        """The deadline of these slots begins now."""
        self._posted_at[slots] = time.monotonic()

    def wait(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Fault]]:
        """The slots that are ready, at least `min_ready` of them; or the faults, as `Backend.wait`."""
        overdue = slots[self._posted_at[slots] < time.monotonic() - self._timeout]
        if not len(overdue):
            return self._backend.wait(slots, self._timeout, min(self._min_ready, len(slots)))
        # Waited for with no time left, a slot without a row is a fault. One whose row has come in time is
        # not, and gets a new deadline so that the next turn of the loop can return it.
        _, faults = self._backend.wait(overdue, 0.0)
        self._posted_at[overdue] = time.monotonic()
        return slots[:0], faults

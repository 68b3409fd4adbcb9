"""The limits of a Stepper: one thread at a time, the first `min_ready` slots, and the workers' memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, Fault
from envs.manager.recovery import GrownWorker, WorkerError
from utils.machine import resident_bytes

# How often the memory of the workers is measured, where it has a limit.
MEMORY_CHECK_S = 1.0


class OneThread:
    """A context manager around every call; the calls of a manager change arrays that no lock protects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_inside = 0
        # Set to True, no thread gets in any more.
        self.closed = False

    def __enter__(self) -> None:
        self.check_open()
        # It does not wait for its turn: two threads that share a manager are a mistake, not a queue.
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "Another thread is in the middle of a call to this manager; one thread at a time."
            )
        self._thread_inside = threading.get_ident()  # `wait_until_free` must not wait for itself
        # It may have been closed between the check and the lock.
        if self.closed:
            self.leave()
            self.check_open()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place inside free."""
        self._thread_inside = 0
        self._lock.release()

    def check_open(self) -> None:
        """An error after the end."""
        if self.closed:
            raise RuntimeError("The manager is closed.")

    def wait_until_free(self, timeout: float) -> bool:
        """Wait until the thread inside has left, and take its place; whether that came true in time.

        From within a call (a recovery that failed) there is no other thread to wait for: False at once.
        """
        if self._thread_inside == threading.get_ident():
            return False
        return self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


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


class MemoryLimit:
    """Finds the worker processes that have grown beyond `limit` megabytes (None: no limit)."""

    def __init__(
        self, backend: Backend, limit: int | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend, self._limit, self._now = backend, limit, now
        self._next_check = now()  # the first post measures already

    def grown(self) -> list[GrownWorker]:
        """The workers beyond the limit, if it is time to measure again."""
        # To measure costs a system call for each worker, and this is asked at every post: once a second is
        # often enough for an environment that leaks.
        if self._limit is None or self._now() < self._next_check:
            return []
        self._next_check = self._now() + MEMORY_CHECK_S
        return self._beyond(self._limit)

    def check_rebuilt(self) -> None:
        """Refuse a limit that workers exceed as soon as they are back where they were.

        Otherwise they would be built anew for ever.
        """
        # A new worker has no leak yet, so what it takes now is what it needs.
        if self._limit is not None and (beyond := self._beyond(self._limit)):
            raise WorkerError(
                f"{beyond[0].sentence} It has only just been built anew, so a larger limit is needed."
            )

    def _beyond(self, limit: int) -> list[GrownWorker]:
        grown: list[GrownWorker] = []
        for pid, slots in self._backend.processes().items():
            size = resident_bytes([pid]) / 1e6  # a worker that has just died takes nothing
            if size > limit:
                # All its slots are built anew together: a process cannot be shrunk by parts.
                word = "slot" if len(slots) == 1 else "slots"
                sentence = (
                    f"The worker of {word} {', '.join(map(str, slots))} takes {size:.0f} MB, "
                    f"and backend.max_worker_memory={limit} is its limit."
                )
                grown.append(GrownWorker(np.array(slots), sentence))
        return grown

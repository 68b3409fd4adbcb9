"""The memory limit of worker processes: an environment that leaks must not end the run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from envs.backends.base import Backend
from envs.manager.recovery import GrownWorker, WorkerError
from utils.machine import resident_bytes

# How often the memory of the workers is measured, where it has a limit.
MEMORY_CHECK_S = 1.0


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

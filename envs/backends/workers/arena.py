"""The arena: rows and actions of all slots in one piece of anonymous shared memory, placed alike by the
trainer and by its workers.

It has no name in /dev/shm or anywhere else, so the kernel frees it with the last process that maps it:
nothing can leak, whoever is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Layout, Rows

ALIGNMENT = 64
"""Bytes of a cache line: arrays do not share one."""


class SharedRowsMemory:
    """Rows and actions in shared memory; a worker opens the trainer's by its file descriptor.

    The mapping lives as long as any of its arrays: rows that somebody still holds stay readable after
    everything is closed.
    """

    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None:
        self.num_bytes = bytes_needed(layout, num_slots)
        self.descriptor = _reserve(self.num_bytes) if descriptor is None else descriptor
        try:
            place = _Placer(mmap.mmap(self.descriptor, self.num_bytes))
        finally:
            if descriptor is not None:
                self.close()
        self.rows: Rows = layout.allocate(num_slots, place)
        self.actions: NDArray[Any] = place.actions(layout, num_slots)

    def close(self) -> None:
        """Close the descriptor, which only starting workers need (also those that start in another's place);
        the memory stays.
        """
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def bytes_needed(layout: Layout, num_slots: int) -> int:
    """The memory that rows and actions of so many slots take."""
    measure = _Placer(None)
    layout.allocate(num_slots, measure)
    measure.actions(layout, num_slots)
    return max(measure.used, 1)


class _Placer:
    """Makes arrays one after the other in a buffer; without a buffer it only measures."""

    def __init__(self, buffer: mmap.mmap | None) -> None:
        self._buffer = buffer
        self.used = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        kind, start = np.dtype(dtype), self.used
        self.used += -(-prod(shape) * kind.itemsize // ALIGNMENT) * ALIGNMENT
        if self._buffer is None:
            return np.broadcast_to(np.zeros((), kind), shape)
        return np.ndarray(shape, kind, self._buffer, start) if prod(shape) else np.zeros(shape, kind)

    def actions(self, layout: Layout, num_slots: int) -> NDArray[Any]:
        space = layout.spec.action_space
        return self((num_slots, *(space.shape or ())), space.dtype)


def _reserve(num_bytes: int) -> int:
    """A descriptor of zeroed memory that has no name. Reserved now: a lack of memory is an error here, not a
    SIGBUS in mid-run.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("retrial-rows")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, num_bytes)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

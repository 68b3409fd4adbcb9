"""Letters from the threads that step environments to the thread of the trainer, which waits for them."""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Fault
from envs.backends.threads.local_host import LocalHost, OrderKind

MORE_THAN_EVER_COME = 2**62


class Letter(NamedTuple):
    """What a host answers: which slots, to which order, and the fault or the picture if there is one."""

    host: LocalHost
    slots: NDArray[np.int64]
    sequence: int
    kind: OrderKind
    fault: Fault | None = None
    picture: NDArray[np.uint8] | None = None


class Mailbox:
    """Letters from working threads to the one that waits, which wakes once for as many letters as it needs.

    The GIL orders the two sides: a letter is put before `_wanted` is read, and `_wanted` is written before
    the letters are counted, so one of the two sees the other. Nearly all of a hand-over is the waking (40 us,
    measured alike for locks and queues), hence one per wait.
    """

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._wanted = MORE_THAN_EVER_COME

    def put(self, letter: Letter) -> None:
        """Add a letter; any thread may call this."""
        self._letters.append(letter)
        if len(self._letters) >= self._wanted:
            self._bell.put(None)

    def take(self, count: int, deadline: float) -> list[Letter]:
        """Return all letters, as soon as there are `count`, or at the deadline."""
        letters = self._letters
        self._wanted = count
        # The bell may still ring for an earlier wait: the letters are counted again after each ring.
        while len(letters) < count:
            try:
                self._bell.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
            except Empty:
                break
        self._wanted = MORE_THAN_EVER_COME
        return [letters.popleft() for _ in range(len(letters))]

"""Deadline: notices that an answer takes too long, with one timer for many messages.

A timer of asyncio for each message would be a sixth of what a message costs. So the timer is left alone while
answers come in time: when it rings it looks whether a message is under way, and since when.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Deadline:
    """Calls `late` where `seconds` pass between `start` and `stop`; it belongs to the running loop."""

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._seconds, self._late = seconds, late
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self.passed = False

    def start(self) -> None:
        """A message is under way from now on."""
        self._due = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Its answer has come."""
        self._due = math.inf

    def end(self) -> None:
        """There will be no more messages."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() >= self._due:
            self.passed = True
            self._late()
        elif self._due < math.inf:
            self._timer = self._loop.call_at(self._due, self._look)

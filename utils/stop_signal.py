"""A polite end: SIGTERM and SIGINT set a flag that a loop reads where it can stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class StopSignal:
    """While entered, the first SIGTERM or SIGINT is only noted; a second one acts as it always did."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python lets nobody set handlers
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType] - it is what signal() gave
        self._previous.clear()

    def __exit__(self, *_: object) -> None:
        self._restore()

"""A polite end: SIGTERM, SIGINT and SIGHUP set a flag that a loop reads where it can stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What schedulers, people, and terminals that are closed send to end a program."""


class StopSignal:
    """While entered, the first of these signals is only noted; a second one acts as always. SIGHUP stays
    ignored where it is (nohup).
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python lets nobody set handlers
            for number in ENDINGS:
                if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        self._restore(
            signal.SIGTERM, signal.SIGINT
        )  # a terminal that closes sends SIGHUP twice, by its shell and by itself

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._previous:
                signal.signal(number, self._previous.pop(number))  # pyright: ignore[reportArgumentType] - it is what signal() gave

    def __exit__(self, *_: object) -> None:
        self._restore(*ENDINGS)

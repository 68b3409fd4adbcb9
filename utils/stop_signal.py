"""A polite end: SIGTERM, SIGINT and SIGHUP set a flag that a loop reads where it can stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self

# What schedulers, users and closing terminals send to end a program.
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignal:
    """While entered, the first of these signals is only noted; a second one acts as always.

    SIGHUP stays ignored where it already is, as under nohup.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python sets handlers nowhere else
            for number in ENDINGS:
                if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        # Not SIGHUP: a terminal that closes sends it twice, by its shell and by itself.
        self._restore(signal.SIGTERM, signal.SIGINT)

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._previous:
                # It is what signal() has returned.
                signal.signal(number, self._previous.pop(number))  # pyright: ignore[reportArgumentType]

    def __exit__(self, *_: object) -> None:
        self._restore(*ENDINGS)

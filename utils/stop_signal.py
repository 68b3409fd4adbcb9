"""A polite end: SIGTERM, SIGINT, SIGHUP and a preemption set a flag that a loop reads where it can stop."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Self


def preemption_signal() -> signal.Signals:
    """The signal by which a scheduler says that it needs the machine: as submitit names it, or SIGUSR2."""
    name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
    return signal.Signals.__members__.get(f"SIG{name}", signal.SIGUSR2)


PREEMPTION = preemption_signal()
# What schedulers, users and closing terminals send to end a program.
ENDINGS = tuple(dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, PREEMPTION)))


class _Masks(threading.local):
    """The signal masks of a thread that is about to fork, one for each hook."""

    def __init__(self) -> None:
        self.before: list[Iterable[int]] = []


_masks = _Masks()


def in_forks(restore: Callable[[], object]) -> None:
    """Call this in every fork of this process, before a signal that ends a run can reach the fork.

    Python forgets what a fork receives while it still has the handlers of its parent: so a `terminate()` that
    comes early would be lost.
    """

    def restore_and_unblock() -> None:
        restore()
        _unblock()

    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=restore_and_unblock)


def _block() -> None:
    _masks.before.append(signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS))


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before.pop())


class StopSignal:
    """While entered, the first of these signals is only noted; a second one acts as always.

    SIGHUP stays ignored where it already is, as under nohup. A second preemption does nothing: the first is
    handed on, by `hand_on`, when the run has written its checkpoint. In forks the signals act as always:
    nobody there reads the flag, and who ends such a process would wait for it in vain. But no fork may take
    a preemption for one of its job, and tell the scheduler.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python sets handlers nowhere else
            for number in ENDINGS:
                if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                    self._previous[number] = signal.signal(number, self._note)
            restore = weakref.WeakMethod(self._restore)
            in_forks(lambda: _restore_in_fork(restore()))
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        # Not SIGHUP: a terminal that closes sends it twice, by its shell and by itself. Not a preemption:
        # a launcher's handler would leave at once, without a checkpoint.
        self._restore(signal.SIGTERM, signal.SIGINT)

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._previous:
                # It is what signal() has returned.
                signal.signal(number, self._previous.pop(number))  # pyright: ignore[reportArgumentType]

    def __exit__(self, *_: object) -> None:
        self._restore(*ENDINGS)


def _restore_in_fork(restore: Callable[..., None] | None) -> None:
    if restore is not None:
        restore(*ENDINGS)
        if callable(signal.getsignal(PREEMPTION)):
            signal.signal(PREEMPTION, signal.SIG_DFL)


def hand_on(number: int) -> None:
    """Give a preemption to a launcher that had a handler for it: it queues the job again, and leaves."""
    if number == PREEMPTION and callable(signal.getsignal(number)):
        signal.raise_signal(number)

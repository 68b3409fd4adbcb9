"""What environments share with the trainer when they run in its process, and a warning when they change it."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_log = logging.getLogger(__name__)


class Surroundings:
    """The working directory, the environment variables, the signal handlers, numpy's global random numbers,
    the default time-out of sockets.

    `look` before environments run alone, `compare` afterwards: what has changed in between was changed by
    them. That is done when they are built, first reset and closed, not at every step. One warning is enough.
    In worker processes nothing of this can reach the trainer.
    """

    def __init__(self) -> None:
        self._seen = _look()
        self._warned = False

    def look(self) -> None:
        """Forget what the trainer itself has changed since."""
        if not self._warned:
            self._seen = _look()

    @contextmanager
    def watch(self, when: str) -> Iterator[None]:
        """Look before and compare after."""
        self.look()
        yield
        self.compare(when)

    def compare(self, when: str) -> None:
        """Warn if something has changed since the last look."""
        if self._warned:
            return
        changes = list(_changes(self._seen, _look()))
        if changes:
            self._warned = True
            _log.warning(
                "The environments changed, %s, what they share with the trainer: %s. In worker processes (backend=process) they could not.",
                when,
                "; ".join(changes),
            )


def _look() -> dict[str, Any]:
    return {
        "the working directory": _working_directory(),
        "environment variables": dict(os.environ),
        "signal handlers": {
            signal.Signals(number).name: signal.getsignal(number) for number in _named_signals()
        },
        "numpy's global random numbers": _numpy_state(),
        "the default time-out of sockets": socket.getdefaulttimeout(),
    }


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "(deleted)"


def _named_signals() -> Iterator[int]:
    names = {int(one) for one in signal.Signals}
    yield from sorted(names & {int(one) for one in signal.valid_signals()})


def _numpy_state() -> tuple[bytes, int, int, float]:
    state: Any = np.random.get_state()
    return state[1].tobytes(), int(state[2]), int(state[3]), float(state[4])


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Each thing that changed, with the names in it but without the values of variables, which may be secret."""
    for thing, old in before.items():
        new = after[thing]
        if new == old:
            continue
        if isinstance(old, dict):
            names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            yield f"{thing} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})"
        elif thing == "numpy's global random numbers":
            yield thing
        else:
            yield f"{thing} (from {old} to {new})"

"""Imported by the forkserver alone: the signals that it keeps from its workers reach what else it starts.

The forkserver blocks what a scheduler sends to a whole group, and a worker inherits that until it has its own
handlers. But a program that uses multiprocessing beside Retrial has the same forkserver: `terminate()` of its
processes sends such a signal too.
"""

from __future__ import annotations

import signal
from multiprocessing import current_process, util

from envs.backends.workers.isolation import WORKER_NAME
from utils.stop_signal import ENDINGS


def _unblock_endings(_: object) -> None:
    """In a new process, once it knows its name."""
    if not current_process().name.startswith(WORKER_NAME):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)


# The first is the object with which the second is called, as long as there is one.
util.register_after_fork(_unblock_endings, _unblock_endings)

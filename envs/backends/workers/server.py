"""The forkserver of this process, which starts its workers: kept going, watched, and ended with its owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, util
from multiprocessing.process import BaseProcess

import psutil

from utils.processes.marks import put_mark
from utils.processes.warden import next_mark, remove_at_the_end

# How long the end of a worker may be silent before the forkserver is woken.
SILENCE_S = 0.05


def _server() -> psutil.Process | None:
    """Return the forkserver, if it runs."""
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is None:
        return None
    with suppress(psutil.NoSuchProcess):
        server = psutil.Process(pid)
        # A dead forkserver stays a zombie until multiprocessing starts the next one.
        if server.status() != psutil.STATUS_ZOMBIE:
            return server
    return None


def follow_server() -> None:
    """Have the forkserver, which may be stopped then, and its folder removed after the trainer's end."""
    server, mark = _server(), next_mark()
    if server is not None and mark is not None:
        put_mark(server.pid, mark)
        remove_at_the_end(util.get_temp_dir())


def resume_server() -> bool:
    """Let a stopped forkserver go on; return whether there is one.

    A stopped forkserver starts no worker and reports the end of none. It must not be replaced: all its
    workers would end with it.
    """
    server = _server()
    with suppress(psutil.NoSuchProcess):
        if server is not None:
            server.resume()
    return server is not None


def wait_for_end(worker: BaseProcess, timeout: float) -> bool:
    """Wait so long for the end of a worker; return whether it has ended.

    multiprocessing hears of it from the forkserver, which may have been stopped, and is woken then.
    """
    deadline = time.monotonic() + timeout
    while worker.exitcode is None and (left := deadline - time.monotonic()) > 0:
        worker.join(min(left, SILENCE_S))
        if worker.exitcode is None:
            resume_server()
    return worker.exitcode is not None


@contextmanager
def server_watched(timeout: float) -> Iterator[None]:
    """End a forkserver that takes too long.

    The trainer waits for its answer with all signals blocked: only the end of the forkserver can wake it.
    """
    timer = threading.Timer(min(timeout, threading.TIMEOUT_MAX), _end_server)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _end_server() -> None:
    server = _server()
    with suppress(psutil.NoSuchProcess):
        if server is not None:
            server.kill()

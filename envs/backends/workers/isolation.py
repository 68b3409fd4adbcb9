"""What a worker is not: interactive, threaded, logging, trusted with secrets, or longer-lived than its
trainer.
"""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import forkserver
from typing import Any

import psutil

from utils.stop_signal import ENDINGS

PR_SET_PDEATHSIG = 1
SINGLE_THREAD: dict[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Workers are the parallelism: threads inside each of them would only fight for the same cores."""
_SECRET_WORDS = {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"}
_SECRET_ENDS = ("APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_SECRET_STARTS = ("AWS_",)
_SECRET_NAMES = ("SSH_AUTH_SOCK",)

trainer_ends: set[int] = set()
"""Descriptors of this process that a forked worker must not keep: a copy of a pipe's end would hide the death
of the one who holds it.
"""


class _Place:
    """Knows whether this process is a worker."""

    inside = False


def inside_worker() -> bool:
    """Whether this process is itself a worker, where no further workers may be started."""
    return _Place.inside


def secret_variables() -> list[str]:
    """The environment variables whose names say that an environment, which is anybody's code, should not see
    them.
    """
    return [name for name in os.environ if is_secret(name)]


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds something to log in with."""
    words = name.upper().replace("-", "_").split("_")
    return (
        any(word.removesuffix("S") in _SECRET_WORDS for word in words)
        or any(word.removesuffix("S").endswith(_SECRET_ENDS) for word in words)
        or name.upper().startswith(_SECRET_STARTS)
        or name.upper() in _SECRET_NAMES
    )


def isolate(own: Iterable[int], tells_where: int, dies_with_parent: bool) -> None:
    """Make this process a worker that keeps only these descriptors of the trainer's; asked by SIGUSR1 it
    writes its stack to `tells_where`.
    """
    _Place.inside = True
    # They reach the whole group; the trainer decides when its workers stop, after its checkpoint.
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for name in secret_variables():
        del os.environ[name]
    os.environ.update(SINGLE_THREAD, WANDB_MODE="disabled")
    for descriptor in trainer_ends - set(own):
        os.close(descriptor)
    trainer_ends.clear()
    # After a deadline the trainer asks a hung worker where it is; this answer works even while the GIL is
    # held.
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=tells_where, all_threads=False)
    if hasattr(
        os, "SCHED_BATCH"
    ):  # or each worker, woken by its request, would interrupt the trainer that is still writing the others'
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if dies_with_parent:
        _die_with_parent()
        _lead_a_group()


def _die_with_parent() -> None:
    """Let the kernel kill this process when the trainer dies, even while it hangs; otherwise the end of the
    pipe stops it.
    """
    # A forkserver's child holds a copy of the pipe by which the forkserver, its parent for the kernel,
    # notices the trainer's death.
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    trainer = multiprocessing.parent_process()
    if trainer is not None and not trainer.is_alive():  # it died before the kernel knew whom to watch
        os._exit(1)


def _lead_a_group() -> None:
    """Be a process group of one's own, so that what an environment starts is killed together with its worker.

    No session of its own: Linux would then weigh its share of a core against the trainer's whole session. And
    only where the kernel watches over the worker: otherwise a SIGKILL to the trainer's group must reach it.
    """
    signal.signal(
        signal.SIGTTOU, signal.SIG_IGN
    )  # a background group may write to the terminal, whatever `stty tostop` says
    with suppress(OSError):
        os.setpgid(0, 0)


def kill_group(pid: int, *, reaped: bool) -> None:
    """End whatever is left of the group that a worker led.

    Where nobody holds the number of a worker that has been `reaped`, somebody else may have it by now; a
    group of that number without a process of that number is what the worker left behind.
    """
    with suppress(ProcessLookupError, PermissionError):
        if not (reaped and psutil.pid_exists(pid)):
            os.killpg(pid, signal.SIGKILL)

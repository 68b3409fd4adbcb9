"""What sets a worker process apart: no terminal, one thread, no secrets, and it ends with its trainer."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from types import FrameType
from typing import Any

import psutil

from utils.environment import passed_on
from utils.stop_signal import ENDINGS, in_forks

# How the names of worker processes begin.
WORKER_NAME = "worker-"
PR_SET_PDEATHSIG = 1
# Workers are the parallelism: threads inside each of them would only fight for the same cores.
SINGLE_THREAD: dict[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)

# Descriptors that a forked worker must close: a copy of a pipe's end would hide the death of its owner, and
# rows belong to the workers of one manager.
trainer_ends: set[int] = set()


class _ThisProcess:
    is_worker = False


def inside_worker() -> bool:
    """Return whether this process is itself a worker, where no further workers may be started."""
    return _ThisProcess.is_worker


def worker_environment(keep: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment variables of a worker, whose environments may be any code: no secrets."""
    return passed_on(os.environ, keep) | SINGLE_THREAD | {"WANDB_MODE": "disabled"}


def isolate(
    own: Iterable[int], stack_file: int, environment: Mapping[str, str], dies_with_parent: bool
) -> None:
    """Make this process a worker, with this environment, and only its `own` of the trainer's descriptors.

    On SIGUSR1 the worker writes its stack to the descriptor `stack_file`.
    """
    _ThisProcess.is_worker = True
    # For the trainer the worker stays a daemon. For itself it is none, or an environment that uses
    # multiprocessing could start no process.
    multiprocessing.current_process().daemon = False
    _stay_at_endings()
    # An environment reads no terminal.
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    # Nor does it see what the trainer does not pass on, whatever this process was started with.
    os.environ.clear()
    os.environ.update(environment)
    # A forked worker has copies of the trainer's ends of the pipes to the other workers.
    for descriptor in trainer_ends - set(own):
        os.close(descriptor)
    trainer_ends.clear()
    # After a deadline the trainer asks a hung worker for its stack; faulthandler answers even while the GIL
    # is held.
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=stack_file, all_threads=False)
    # Otherwise each worker, woken by its request, would interrupt the trainer, which still writes the
    # requests of the others.
    if hasattr(os, "SCHED_BATCH"):
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if dies_with_parent:
        _die_with_parent()
        _lead_a_group()


def _stay_at_endings() -> None:
    """Let the signals that end a run pass by: they reach the whole group, and the trainer decides when its
    workers stop, after its checkpoint.

    By a handler that does nothing, since what is *ignored* stays ignored in all that an environment starts:
    `terminate()` of a simulator would not end it, and the `wait()` after it would hang.
    """
    for number in ENDINGS:
        signal.signal(number, _pass_by)
        signal.siginterrupt(number, False)  # a system call of an environment goes on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    # A program that is started has no handlers. A fork has those of its parent.
    in_forks(_end_at_endings)


def _pass_by(number: int, frame: FrameType | None) -> None:
    """Do nothing."""


def _end_at_endings() -> None:
    for number in ENDINGS:
        if signal.getsignal(number) is _pass_by:
            signal.signal(number, signal.SIG_DFL)


def _die_with_parent() -> None:
    """Let the kernel kill this process when the trainer dies, even while it hangs.

    On other systems than Linux the end of the pipe stops a worker, as soon as it reads its next request.
    """
    # A forkserver's child holds a copy of the pipe by which the forkserver, its parent for the kernel,
    # notices the trainer's death.
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None
        # An environment that uses multiprocessing must not wait for a forkserver that is no child of its own.
        server._forkserver_pid = None
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The trainer may have died before the kernel knew which process to watch.
    trainer = multiprocessing.parent_process()
    if trainer is not None and not trainer.is_alive():
        os._exit(1)


def _lead_a_group() -> None:
    """Lead a process group of its own, so that what an environment starts is killed together with its worker.

    No session of its own: Linux would then weigh its share of a core against the trainer's whole session. And
    only where the kernel ends the worker with its trainer: otherwise a SIGKILL to the trainer's group must
    reach it.
    """
    # A background group may write to the terminal, whatever `stty tostop` says.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with suppress(OSError):
        os.setpgid(0, 0)


def kill_group(pid: int, *, reaped: bool) -> None:
    """End whatever is left of the group that a worker led.

    After a worker has been `reaped` another process may have its number. A group of that number without a
    process of that number is what the worker left behind.
    """
    with suppress(ProcessLookupError, PermissionError):
        if not (reaped and psutil.pid_exists(pid)):
            os.killpg(pid, signal.SIGKILL)

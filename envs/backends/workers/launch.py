"""How worker processes are started: start method, limits, what a child inherits, and its two pipes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import forkserver, process, resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from envs.backends.base import BackendError, StartMethod
from envs.backends.workers import isolation, worker
from envs.backends.workers.server import follow_server, resume_server, server_watched
from utils.environment import withheld
from utils.machine import available_memory
from utils.processes.imports import import_guards
from utils.processes.marks import put_mark
from utils.processes.warden import next_mark
from utils.stop_signal import ENDINGS

# Imported once, by the forkserver; each worker is then a fork of it, ready in a few milliseconds.
PRELOADED = ["envs.backends.workers.preloaded", "envs.backends.workers.worker", "envs.parallel_env_manager"]
FILES_PER_WORKER = 4
SPARE_FILES = 24
# Files that a run opens after its config is checked: its record, its memory, the pipes of the helpers.
RUN_FILES = 12
# The forkserver, the resource tracker, and the thread that watches the forkserver while workers start.
HELPERS = 3
# The least time that the forkserver has to import the project and to fork every worker.
START_WAIT_S = 120.0
ROOT = str(Path(__file__).resolve().parents[3])
MIB = 1 << 20

_log = logging.getLogger(__name__)
_starting = threading.Lock()


@dataclass
class Child:
    """A started worker, with the trainer's ends of its pipes, neither of which blocks."""

    process: BaseProcess
    requests: int
    replies: int
    # The mark of whatever it starts; None where there are no marks.
    mark: int | None = None


def start_method_name(chosen: StartMethod) -> str:
    """Return the name of a start method that this system has; auto is forkserver or else spawn."""
    known = multiprocessing.get_all_start_methods()
    if chosen is StartMethod.auto:
        return "forkserver" if "forkserver" in known else "spawn"
    if chosen.value not in known:
        raise BackendError(
            f"start_method={chosen.value} does not exist on this system; it has {', '.join(known)}."
        )
    if chosen is StartMethod.fork and threading.active_count() > 1:
        _log.warning(
            "start_method=fork beside %d other threads: "
            "a lock that one of them holds stays locked in the worker.",
            threading.active_count() - 1,
        )
    return chosen.value


# -- limits, checked before the first process is started -----------------------------------------------------


def check_startable(num_workers: int, *, twice: bool = False) -> None:
    """Refuse what would fail half-way: workers inside workers, too few file descriptors, too few processes.

    `twice`: so many workers train, and as many others evaluate.
    """
    if isolation.inside_worker():
        raise BackendError(
            "A worker process that imports this module would start workers of its own: "
            'put the code that the module runs under `if __name__ == "__main__":`.'
        )
    if multiprocessing.current_process().daemon:
        raise BackendError(
            "This is a daemonic child process, which cannot start worker processes: use backend=serial here."
        )
    # Two sets of workers open files for what the run opens in between, too.
    sets, run_files = (2, RUN_FILES) if twice else (1, 0)
    used_files = len(os.listdir("/dev/fd")) + SPARE_FILES + run_files
    _check_limit(
        "open files", "-n", resource.RLIMIT_NOFILE, num_workers, sets, FILES_PER_WORKER, lambda: used_files
    )
    if os.geteuid() != 0:  # root may start as many processes as it likes
        _check_limit("processes", "-u", resource.RLIMIT_NPROC, num_workers, sets, 1, _used_processes)


def _check_limit(
    what: str, flag: str, limit: int, num_workers: int, sets: int, per_worker: int, used: Callable[[], int]
) -> None:
    """Refuse `sets` times so many workers if they would need more than the system allows.

    `flag` is the option of `ulimit` that raises the limit.
    """
    allowed = resource.getrlimit(limit)[0]
    if allowed == resource.RLIM_INFINITY:
        return
    used_now, each = used(), sets * per_worker
    needed = used_now + each * num_workers
    if needed <= allowed:
        return
    workers = f"{num_workers} worker processes"
    if sets == 2:
        workers += f" to train and {num_workers} to evaluate"
    fewer = (allowed - used_now) // each
    fewer_workers = f"use fewer workers (num_parallel_workers={fewer})"
    instead = fewer_workers if fewer >= 1 else "step in this process (backend=serial)"
    raise BackendError(
        f"{workers} need {needed} {what}, but only {allowed} are allowed: "
        f"run `ulimit {flag} {needed}` before, or {instead}."
    )


def _used_processes() -> int:
    """Return what the limit on processes counts, the threads of the user's processes, and our helpers."""
    infos = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    own = [info for info in infos if info["uids"] and info["uids"].real == os.getuid()]
    return sum(info["num_threads"] or 0 for info in own) + HELPERS


def check_memory(num_bytes: int, num_slots: int) -> None:
    """Refuse rows that do not fit: the system would end some process for them, perhaps this one."""
    needed = f"The rows of {num_slots} slots need {_mebibytes(num_bytes)} MiB of memory"
    free = available_memory()
    if num_bytes > free:
        raise BackendError(
            f"{needed}, but only {free // MIB} MiB are free: use fewer slots or smaller observations."
        )
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = psutil.Process().memory_info().vms
    if allowed != resource.RLIM_INFINITY and used + num_bytes > allowed:
        raise BackendError(
            f"{needed}, {_mebibytes(used + num_bytes)} MiB with what this process has, "
            f"but only {allowed // MIB} MiB of addresses are allowed: "
            f"run `ulimit -v unlimited` before, or use fewer slots."
        )


def _mebibytes(num_bytes: int) -> int:
    """Return the number of MiB, rounded up."""
    return -(-num_bytes // MIB)


# -- starting ------------------------------------------------------------------------------------------------


def start_children(
    method: str, numbers: Sequence[int], memory: int, environment: Mapping[str, str], timeout: float
) -> Generator[Child, None, None]:
    """Start these workers one by one; each imports while the next ones are started.

    They see the variables of `environment`, which is sent to them: what a process is started with, others can
    read, and a forkserver may be older than this environment.
    An `EOFError` says that the forkserver has died or did not answer in time.
    """
    context = multiprocessing.get_context(method)
    with ExitStack() as stack:
        stack.enter_context(_prepared(method))
        if method == "forkserver":
            stack.enter_context(server_watched(max(timeout, START_WAIT_S)))
        for number in numbers:
            yield _start_child(context, method, number, memory, environment)


def _start_child(
    context: BaseContext, method: str, number: int, memory: int, environment: Mapping[str, str]
) -> Child:
    # Our own ends of the two pipes do not block: the trainer waits with poll only.
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    os.set_blocking(requests_in, False)
    os.set_blocking(replies_out, False)
    isolation.trainer_ends.update((requests_in, replies_out))
    # The kernel counts as the parent the *thread* that forked: one that ends early would take its workers
    # along.
    lasting = method == "forkserver" or threading.current_thread() is threading.main_thread()
    descriptors = worker.WorkerDescriptors(memory, requests_out, replies_in)
    new: Any = context.Process(  # pyright: ignore[reportAttributeAccessIssue]
        target=worker.worker_main,
        args=(descriptors, environment, lasting, import_guards()),
        daemon=True,
        name=f"{isolation.WORKER_NAME}{number}",
    )
    child = Child(new, requests_in, replies_out, next_mark())
    try:
        new.start()
        # At the end of the interpreter multiprocessing would wait for it without a limit; the backend does
        # not, which ends its workers before.
        vars(process).get("_children", set()).discard(new)
        # No environment runs before the first request: nothing that one starts is without the mark.
        if child.mark is not None:
            put_mark(new.pid, child.mark)
    except BaseException:
        close_pipes(child)
        raise
    finally:
        # With the worker's ends open in the trainer too, the end of the worker would not end the pipes.
        os.close(requests_out)
        os.close(replies_in)
    return child


def close_pipes(child: Child) -> None:
    """Close the trainer's ends of the pipes; a worker that waits for requests then ends."""
    for descriptor in (child.requests, child.replies):
        isolation.trainer_ends.discard(descriptor)
        os.close(descriptor)


@contextmanager
def _prepared(method: str) -> Iterator[None]:
    """Set what children inherit at their start, for the time of starting them."""
    with _starting, ExitStack() as stack:
        if method != "fork":
            # Before the signals are blocked, since the start of the tracker unblocks them; without secrets,
            # which a worker could read from it.
            with _inheritable_environment():
                resource_tracker.ensure_running()
        # The forkserver and the workers inherit this mask: a scheduler's SIGTERM to the whole group must
        # leave the trainer its workers.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, unblocked)
        # With the real __main__ every child would run the user's script again, guarded or not.
        stack.callback(sys.modules.__setitem__, "__main__", sys.modules["__main__"])
        if method != "fork":
            sys.modules["__main__"] = ModuleType("__main__")
        if method == "forkserver":
            forkserver.set_forkserver_preload(PRELOADED)
            # A forkserver that runs has its environment already.
            with nullcontext() if resume_server() else _inheritable_environment():
                forkserver.ensure_running()
            follow_server()
        elif method == "spawn":
            stack.enter_context(_inheritable_environment())
        yield


@contextmanager
def _inheritable_environment() -> Iterator[None]:
    """Set the variables of a new process: no secrets, one thread per library, and where it imports from.

    multiprocessing starts its processes with this process's own variables, so these change for that moment.
    """
    before = dict(os.environ)
    for name in withheld(before):
        del os.environ[name]
    os.environ.update(isolation.worker_environment())
    # The preloading of a forkserver reads PYTHONPATH, not our sys.path.
    # Without PYTHONSAFEPATH it would search the current folder first, for our modules and for Python's own.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [before.get("PYTHONPATH")])])
    try:
        yield
    finally:
        # Only what has changed is put back, so that other variables are left alone.
        changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
        for name in changed:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]

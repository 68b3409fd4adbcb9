"""How worker processes are started: the start method, the limits, what a child must not see or re-import, and
the two pipes to it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from envs.backends.base import BackendError, StartMethod
from envs.backends.workers import isolation, worker
from utils.machine import available_memory
from utils.stop_signal import ENDINGS

PRELOADED = ["envs.backends.workers.worker", "envs.parallel_env_manager"]
"""Imported once, by the forkserver; each worker is then a fork of it, ready in a few milliseconds."""
FILES_PER_WORKER = 4
SPARE_FILES = 24
RUN_FILES = 12
"""What a run opens between the look at its config and the start of its second set of workers: its record, its
memory, the helpers' pipes.
"""
HELPERS = 3
"""The forkserver, the resource tracker, and a thread that watches over the forkserver while workers are
started.
"""
START_WAIT_S = 120.0
"""How long the forkserver may take at least, to import and then to fork every worker."""
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


def resolve(chosen: StartMethod) -> str:
    """The name of a start method that this system has."""
    known = multiprocessing.get_all_start_methods()
    if chosen is StartMethod.auto:
        return "forkserver" if "forkserver" in known else "spawn"
    if chosen.value not in known:
        raise BackendError(
            f"start_method={chosen.value} does not exist on this system; it has {', '.join(known)}."
        )
    if chosen is StartMethod.fork and threading.active_count() > 1:
        _log.warning(
            "start_method=fork beside %d other threads: a lock that one of them holds stays locked in the worker.",
            threading.active_count() - 1,
        )
    return chosen.value


# -- limits, looked at before the first process --------------------------------------------------------------


def check_startable(num_workers: int, *, twice: bool = False) -> None:
    """Refuse in one sentence what would fail half-way: workers inside workers, too few file descriptors, too
    few processes.

    `twice`: so many workers will train, and as many others evaluate.
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
    spent = len(os.listdir("/dev/fd")) + SPARE_FILES + (RUN_FILES if twice else 0)
    _check("open files", "-n", resource.RLIMIT_NOFILE, num_workers, spent, FILES_PER_WORKER, twice)
    if os.geteuid() != 0:  # root may start as many as it likes
        _check(
            "processes",
            "-u",
            resource.RLIMIT_NPROC,
            num_workers,
            lambda: _tasks_of(os.getuid()) + HELPERS,
            1,
            twice,
        )


def _check(
    what: str, flag: str, limit: int, num_workers: int, spent: Any, per_worker: int, twice: bool
) -> None:
    allowed = resource.getrlimit(limit)[0]
    if allowed == resource.RLIM_INFINITY:
        return
    spent = spent() if callable(spent) else spent
    each = 2 * per_worker if twice else per_worker
    needed = spent + each * num_workers
    if needed > allowed:
        who = f"{num_workers} worker processes" + (
            f" to train and {num_workers} to evaluate" if twice else ""
        )
        fewer = (allowed - spent) // each
        instead = (
            f"use fewer workers (num_parallel_workers={fewer})"
            if fewer >= 1
            else "step in this process (backend=serial)"
        )
        raise BackendError(
            f"{who} need {needed} {what}, but only {allowed} are allowed: run `ulimit {flag} {needed}` before, or {instead}."
        )


def _tasks_of(user: int) -> int:
    """Threads of all processes of a user, which is what the limit on processes counts."""
    found = psutil.process_iter(["uids", "num_threads"])
    return sum(
        one.info["num_threads"] or 0 for one in found if one.info["uids"] and one.info["uids"].real == user
    )


def check_memory(num_bytes: int, num_slots: int) -> None:
    """Refuse in one sentence rows that do not fit: reserving them would have the system end some process,
    perhaps this one.
    """
    needed = f"The rows of {num_slots} slots need {-(-num_bytes // MIB)} MiB of memory"
    free = available_memory()
    if num_bytes > free:
        raise BackendError(
            f"{needed}, but only {free // MIB} MiB are free: use fewer slots or smaller observations."
        )
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    spent = psutil.Process().memory_info().vms
    if allowed != resource.RLIM_INFINITY and spent + num_bytes > allowed:
        raise BackendError(
            f"{needed}, {-(-(spent + num_bytes) // MIB)} MiB with what this process has, but only {allowed // MIB} MiB of addresses are allowed: "
            f"run `ulimit -v unlimited` before, or use fewer slots."
        )


# -- starting ------------------------------------------------------------------------------------------------


def start_children(
    method: str, numbers: Sequence[int], memory: int, timeout: float
) -> Generator[Child, None, None]:
    """Start these workers, one by one: they are then importing and building side by side. An `EOFError` if
    the forkserver does not answer.
    """
    context = multiprocessing.get_context(method)
    with _prepared(method), _watched(max(timeout, START_WAIT_S)) if method == "forkserver" else nullcontext():
        for number in numbers:
            yield _start_child(context, method, number, memory)


def _start_child(context: BaseContext, method: str, number: int, memory: int) -> Child:
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    os.set_blocking(requests_in, False)
    os.set_blocking(replies_out, False)
    isolation.trainer_ends.update((requests_in, replies_out))
    # The kernel counts as the parent the *thread* that forked: one that ends early would take its workers
    # along.
    lasting = method == "forkserver" or threading.current_thread() is threading.main_thread()
    link = worker.Link(memory, requests_out, replies_in)
    process: Any = context.Process(  # pyright: ignore[reportAttributeAccessIssue]
        target=worker.main, args=(link, lasting), daemon=True, name=f"worker-{number}"
    )
    child = Child(process, requests_in, replies_out)
    try:
        process.start()
    except BaseException:
        hang_up(child)
        raise
    finally:
        os.close(requests_out)
        os.close(replies_in)
    return child


def hang_up(child: Child) -> None:
    """Close the trainer's ends of the pipes; a worker that waits for requests then ends."""
    for descriptor in (child.requests, child.replies):
        isolation.trainer_ends.discard(descriptor)
        os.close(descriptor)


@contextmanager
def _prepared(method: str) -> Iterator[None]:
    """What children inherit or are told at their start, for the time of starting them."""
    if method != "fork":
        resource_tracker.ensure_running()  # before the signals are blocked: its start unblocks them
    with _starting:
        # The forkserver and the workers keep this mask: a scheduler's SIGTERM to the whole group must leave
        # the trainer its workers.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        script = sys.modules["__main__"]
        if method != "fork":  # or every child would run the user's script again, guarded or not
            sys.modules["__main__"] = ModuleType("__main__")
        try:
            if method == "forkserver":
                forkserver.set_forkserver_preload(PRELOADED)
                with nullcontext() if wake_server() else _inheritable_environment():
                    forkserver.ensure_running()
            with _inheritable_environment() if method == "spawn" else nullcontext():
                yield
        finally:
            sys.modules["__main__"] = script
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _server() -> psutil.Process | None:
    """The forkserver, if it runs."""
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    with suppress(psutil.NoSuchProcess):
        found = None if pid is None else psutil.Process(pid)
        if (
            found is not None and found.status() != psutil.STATUS_ZOMBIE
        ):  # nobody waits for it until the next is to be started
            return found
    return None


def wake_server() -> bool:
    """Whether the forkserver runs, which then has its environment; so that restarts in mid-run leave the
    trainer's alone.

    One that somebody has stopped starts no worker and tells of no end of one: it is to go on, since with it
    all its workers would end.
    """
    server = _server()
    with suppress(psutil.NoSuchProcess):
        if server is not None:
            server.resume()
    return server is not None


@contextmanager
def _watched(timeout: float) -> Iterator[None]:
    """A forkserver that is not done with its work in here by then is ended: whoever waits for its answer,
    deaf to signals, reads its end.
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


@contextmanager
def _inheritable_environment() -> Iterator[None]:
    """The environment variables of a new process: ours without secrets, one thread per library, and where to
    find this project.
    """
    before = dict(os.environ)
    for name in isolation.secret_variables():
        del os.environ[name]
    os.environ.update(isolation.SINGLE_THREAD)
    # A forkserver's preloading looks at the environment, not at our sys.path.
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [before.get("PYTHONPATH")])])
    try:
        yield
    finally:
        changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
        for name in changed:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]

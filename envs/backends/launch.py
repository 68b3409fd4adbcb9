"""How worker processes are started: the start method, what a child must not see or re-import, and the two pipes to it."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from envs.backends import worker
from envs.backends.base import BackendError, StartMethod

PRELOADED = ["envs.backends.worker", "envs.parallel_env_manager"]
"""Imported once, by the forkserver; each worker is then a fork of it, ready in a few milliseconds."""
FILES_PER_WORKER = 4
SPARE_FILES = 24
ROOT = str(Path(__file__).resolve().parents[2])

_starting = threading.Lock()


@dataclass
class Child:
    """A started worker, with the trainer's ends of its pipes."""

    process: BaseProcess
    requests: int
    replies: int


def resolve(chosen: StartMethod) -> str:
    """The name of a start method that this system has."""
    known = multiprocessing.get_all_start_methods()
    if chosen is StartMethod.auto:
        return "forkserver" if "forkserver" in known else "spawn"
    if chosen.value not in known:
        raise BackendError(f"start_method={chosen.value} does not exist on this system; it has {', '.join(known)}.")
    return chosen.value


def check_startable(num_workers: int) -> None:
    """Refuse in one sentence what would fail half-way: workers inside workers, and too few file descriptors."""
    if worker.inside_worker():
        raise BackendError(
            "A worker process that imports this module would start workers of its own: "
            'put the code that the module runs under `if __name__ == "__main__":`.'
        )
    if multiprocessing.current_process().daemon:
        raise BackendError("This is a daemonic child process, which cannot start worker processes: use backend=serial here.")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    spent = len(os.listdir("/dev/fd")) + SPARE_FILES
    needed = spent + FILES_PER_WORKER * num_workers
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        fewer = max(1, (allowed - spent) // FILES_PER_WORKER)
        raise BackendError(
            f"{num_workers} worker processes need {needed} open files, but only {allowed} are allowed: "
            f"run `ulimit -n {needed}` before, or use fewer workers (num_parallel_workers={fewer})."
        )


def start_children(method: str, num_workers: int, memory: int) -> Generator[Child, None, None]:
    """Start the workers, one by one: they are then importing and building side by side."""
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    with _prepared(method):
        for number in range(num_workers):
            yield _start_child(context, method, number, memory)


def _start_child(context: BaseContext, method: str, number: int, memory: int) -> Child:
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    os.set_blocking(requests_in, False)
    worker.trainer_ends.update((requests_in, replies_out))
    # The kernel counts as the parent the *thread* that forked: one that ends early would take its workers along.
    lasting = method == "forkserver" or threading.current_thread() is threading.main_thread()
    link = worker.Link(memory, requests_out, replies_in)
    process: Any = context.Process(target=worker.main, args=(link, lasting), daemon=True, name=f"worker-{number}")  # pyright: ignore[reportAttributeAccessIssue]
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
        worker.trainer_ends.discard(descriptor)
        os.close(descriptor)


@contextmanager
def _prepared(method: str) -> Iterator[None]:
    """What children inherit or are told at their start, for the time of starting them."""
    if method != "fork":
        resource_tracker.ensure_running()  # before the signals are blocked: its start unblocks them
    with _starting:
        # The forkserver and the workers keep this mask: a scheduler's SIGTERM to the whole group must leave the trainer its workers.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        before, script = dict(os.environ), sys.modules["__main__"]
        os.environ.update(worker.SINGLE_THREAD)
        if method == "forkserver":  # its preloading looks at the environment, not at our sys.path
            os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [before.get("PYTHONPATH")])])
        if method != "fork":  # or every child would run the user's script again, guarded or not
            sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script
            for name in (*worker.SINGLE_THREAD, "PYTHONPATH"):
                if name in before:
                    os.environ[name] = before[name]
                else:
                    os.environ.pop(name, None)
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

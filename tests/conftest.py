"""What every test has: one thread per library, and a check that it left nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from utils.processes.warden import warden_pid, warden_pipe

GRACE_S = 2.0
_FAILED = pytest.StashKey[bool]()
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


# A shell starts background jobs with SIGINT ignored; Python and its children then never see it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember failures: the report of one keeps its frames, and with them what the test held."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Descriptors, threads, child processes and names in /dev/shm after a test are those before it."""
    before = _belongings()
    yield
    if _FAILED in request.node.stash:
        return
    deadline = time.monotonic() + GRACE_S
    while (left := _left_over(before)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left, f"The test left behind: {left}"


def _left_over(before: dict[str, set[str]]) -> dict[str, set[str]]:
    after = _belongings()
    return {kind: after[kind] - before[kind] for kind in after if after[kind] - before[kind]}


def _belongings() -> dict[str, set[str]]:
    """What this process holds, but for the helpers, its warden and two of multiprocessing, which live as long
    as it does.
    """
    server: Any = vars(forkserver)["_forkserver"]
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    helpers = {server._forkserver_pid, tracker._pid, warden_pid()}
    helper_files = {server._forkserver_alive_fd, tracker._fd, warden_pipe()}
    children: set[str] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if child.pid not in helpers:
                children.add(f"{child.pid} {child.status()} {' '.join(child.cmdline())[:200]}")
        except psutil.NoSuchProcess:
            continue
    return {
        "files": {f"{number} -> {target}" for number, target in _open_files() if number not in helper_files},
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "children": children,
        "shared memory": set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set(),
    }


def _open_files() -> Iterator[tuple[int, str]]:
    folder = Path("/proc/self/fd")
    for name in os.listdir(folder) if folder.exists() else []:
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if "/mpl-data/fonts/" not in target:  # matplotlib keeps the fonts that it has drawn with
            yield int(name), target

"""Rows C of the fault list (test_faults.py): whatever ends the trainer ends its workers, nothing leaks, and
limits are named before they hurt.
"""

from __future__ import annotations

import ast
import gc
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import pytest

from envs.backends.base import BackendError
from envs.parallel_env_manager import ParallelEnvManager
from tests.envs.backends.workers.test_launch import launch, wait_for_end
from tests.faults import DEADLINE_S, FAULT_FREE, SLOTS, fault_free, faulty, happened, manage, played
from tests.toys import LongTaskFamily

ROOT = Path(__file__).resolve().parents[3]
STILL = np.zeros((SLOTS, 2), np.float32)
# What is done to the trainer, given its idle worker.
End = Callable[[subprocess.Popen[str], int], None]

# -- C1, C3: the end of the trainer --------------------------------------------------------------------------


# Five workers: one computes, one sleeps, one holds the GIL, one is stopped, one is idle.
EVERY_STATE = """
families = [FaultyFamily(fault=fault, at=1) for fault in ("busy", "sleep", "hold_gil")]
families += [FaultyFamily(where="nowhere")] * 2
factories = [lambda family=family: family for family in families]
config = BackendConfig(name="process", start_method=StartMethod[sys.argv[1]], close_timeout_s=0.3)
def fail(*_):
    raise ValueError("nobody catches this")
signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
signal.signal(signal.SIGUSR2, fail)
with ParallelEnvManager(factories, num_workers=5, backend=config) as manager:
    manager.reset()
    for slot in range(3):
        manager.remotes[slot].send(("step", np.zeros(2)))
    os.kill(manager.pids[3], signal.SIGSTOP)
    os.write(1, f"ready {manager.pids[4]}\\n".encode())
    signal.pause()
"""


def twice(process: subprocess.Popen[str], idle: int) -> None:
    """Ctrl-C, and once more while it closes (the idle worker is the first to have ended)."""
    watch = os.pidfd_open(idle)
    process.send_signal(signal.SIGINT)
    assert wait_for_end({idle: watch}, 60.0) == []
    os.close(watch)
    process.send_signal(signal.SIGINT)


ENDS: dict[str, tuple[End, int]] = {
    "Ctrl-C": (lambda process, idle: process.send_signal(signal.SIGINT), -signal.SIGINT),
    "Ctrl-C twice": (twice, -signal.SIGINT),
    "SIGTERM": (lambda process, idle: process.terminate(), -signal.SIGTERM),
    "SIGHUP": (lambda process, idle: process.send_signal(signal.SIGHUP), -signal.SIGHUP),
    "SIGKILL": (lambda process, idle: process.kill(), -signal.SIGKILL),
    "SIGKILL to the group": (lambda process, idle: os.killpg(process.pid, signal.SIGKILL), -signal.SIGKILL),
    "os._exit": (lambda process, idle: process.send_signal(signal.SIGUSR1), 3),
    "an error": (lambda process, idle: process.send_signal(signal.SIGUSR2), 1),
}


def children_after(folder: Path, method: str, end: End) -> tuple[list[str], int]:
    """(the processes that outlive the trainer by a minute, its exit code); they are ended then."""
    watched: dict[int, int] = {}
    with launch(folder, EVERY_STATE, method) as process:
        try:
            idle = read_all(process)
            found = psutil.Process(process.pid).children(recursive=True)
            watched |= {child.pid: os.pidfd_open(child.pid) for child in found}
            assert len(watched) >= 5
            end(process, idle)
            code = process.wait(60.0)
            return [f"{psutil.Process(pid).status()} {pid}" for pid in wait_for_end(watched, 60.0)], code
        finally:
            process.kill()
            for pid, descriptor in watched.items():
                if wait_for_end({pid: descriptor}, 0.001):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)


def read_all(process: subprocess.Popen[str]) -> int:
    """Read until every worker is in its state; the number of the idle one."""
    assert process.stdout is not None and process.stderr is not None
    hanging, idle = 0, 0
    while hanging < 3 or not idle:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        hanging += "hanging" in line
        idle = int(line.split()[1]) if line.startswith("ready") else idle
    return idle


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_no_worker_in_any_state_outlives_its_trainer(method: str, end: str, tmp_path: Path) -> None:
    act, code = ENDS[end]
    assert children_after(tmp_path, method, act) == ([], code)


# -- C2: again and again -------------------------------------------------------------------------------------


def cycle() -> None:
    """Build, step, close."""
    with manage(FAULT_FREE, workers=1) as manager:
        manager.reset()
        manager.step(STILL)


def killed_cycle() -> None:
    """One of whose workers dies."""
    with manage(FAULT_FREE) as manager:
        manager.reset()
        os.kill(manager.pids[1], signal.SIGKILL)
        manager.step(STILL)
        assert manager.faults.restarts == 3


def failed_cycle() -> None:
    """That cannot be built."""
    with pytest.raises(BackendError, match="the toy is broken"):
        manage(faulty(Path(), "raise", times=0, where="make_shard"))


@pytest.mark.parametrize(("what", "times"), [(cycle, 100), (killed_cycle, 20), (failed_cycle, 20)])
def test_many_managers_one_after_the_other_leave_nothing(what: Callable[[], None], times: int) -> None:
    seen: list[tuple[int, int, int]] = []
    me, memory = psutil.Process(), list[int]()
    for _ in range(times + 10):
        what()
        gc.collect()  # the mapping of rows that are still referred to keeps a descriptor
        seen.append((len(os.listdir("/dev/fd")), me.num_threads(), len(me.children(recursive=True))))
        memory.append(me.memory_info().rss)
    assert seen[10:] == [seen[9]] * times
    assert memory[-1] - memory[9] < 1e6


# -- C4, C5: limits ------------------------------------------------------------------------------------------


@contextmanager
def limited(which: int, allowed: int) -> Iterator[None]:
    """In here only so much is allowed."""
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (allowed, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def test_memory_for_the_rows_that_cannot_be_had_is_one_error_before_any_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel keeps the limit on files for memory without a name, too: it acts as a full disk would."""
    monkeypatch.setattr("envs.backends.workers.process.start_children", None)
    before = len(os.listdir("/dev/fd"))
    with (
        limited(resource.RLIMIT_FSIZE, 100),
        pytest.raises(BackendError, match="shared memory for the rows of 4 slots could not be reserved"),
    ):
        ParallelEnvManager(LongTaskFamily(), 4, num_workers=2)
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


def test_an_environment_out_of_memory_is_a_fault_like_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with manage(faulty(tmp_path, "no_memory")) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 1
    assert "MemoryError: Unable to allocate 2.00 GiB" in caplog.text


def test_names_in_dev_shm_are_not_even_used_while_running(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    with manage(FAULT_FREE) as manager:
        manager.reset()
        assert set(os.listdir("/dev/shm")) == before


# -- C6: clocks ----------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_ends_no_call_and_prolongs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = count(2**33, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    with manage(faulty(tmp_path, "sleep"), call_timeout_s=DEADLINE_S) as manager:
        assert played(manager) == fault_free()
        assert manager.faults.restarts <= 3


def test_deadlines_are_kept_by_clocks_that_do_not_jump() -> None:
    jumping = {"time.time", "time.localtime", "datetime.now", "datetime.datetime.now"}
    files = sorted((ROOT / "envs").rglob("*.py"))
    calls = [
        ast.unparse(node.func)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    ]
    assert "time.monotonic" in calls and not jumping & set(calls)

"""A forkserver that was stopped, at any moment, costs a run nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import psutil
import pytest

import envs.backends.workers.launch as launch_module
from envs.backends.base import BackendConfig
from envs.parallel_env_manager import ParallelEnvManager
from tests.envs.backends.workers.test_launch import run
from tests.toys import CountingConfig, CountingFamily


@contextmanager
def stopped_server() -> Iterator[psutil.Process]:
    """The forkserver, after somebody has stopped it; one that nobody wakes is ended after a minute, so
    that nothing hangs.
    """
    server = psutil.Process(vars(forkserver)["_forkserver"]._forkserver_pid)
    timer = threading.Timer(60.0, server.kill)
    server.suspend()
    timer.start()
    try:
        yield server
    finally:
        timer.cancel()
        timer.join()


def test_a_forkserver_that_was_stopped_goes_on_and_its_workers_live() -> None:
    config = BackendConfig(name="process")
    still = np.zeros((2, 2), np.float32)
    with ParallelEnvManager(
        CountingFamily(CountingConfig(falls=False)), 2, num_workers=2, backend=config
    ) as manager:
        manager.reset()
        kept, lost = manager.pids
        with stopped_server() as server:
            os.kill(lost, signal.SIGKILL)
            assert manager.step(still).info[:, 0].tolist() == [1.0, 1.0]
            assert manager.pids[0] == kept and server.is_running() and manager.faults.restarts == 1


def test_a_forkserver_that_does_not_answer_is_ended_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    family, config, before = CountingFamily(), BackendConfig(name="process"), threading.active_count()
    ParallelEnvManager(family, 2, num_workers=2, backend=config).close()
    with monkeypatch.context() as patch, stopped_server() as server:
        patch.setattr(psutil.Process, "resume", lambda process: None)
        patch.setattr(launch_module, "START_WAIT_S", 0.1)
        with pytest.raises(EOFError):
            list(launch_module.start_children("forkserver", [0], -1, {}, 0.1))
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        assert threading.active_count() == before + 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint({signal.SIGINT, signal.SIGTERM})
    with ParallelEnvManager(family, 2, num_workers=2, backend=config) as manager:
        assert manager.reset().valid.all()


def test_closing_wakes_a_forkserver_that_was_stopped() -> None:
    manager = ParallelEnvManager(CountingFamily(), 2, num_workers=2, backend=BackendConfig(name="process"))
    with stopped_server() as server:
        manager.close()
        assert server.status() != psutil.STATUS_ZOMBIE
        assert server.children() == [], "it has asked for the end of the workers"


# A program whose forkserver somebody stops before its last line.
STOPPED_AT_THE_END = """
from multiprocessing import forkserver
from envs.backends.workers import process, server
if sys.argv[2] == "nobody wakes it":
    server.resume_server, process.END_WAIT_S = lambda: False, 0.1
manager = manage(CountingFamily(), close_timeout_s=0.1)
os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
print(json.dumps([forkserver._forkserver._forkserver_pid]))
"""


@pytest.mark.parametrize("case", ["the last line", "nobody wakes it"])
def test_a_program_ends_although_its_forkserver_was_stopped(case: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, STOPPED_AT_THE_END, "forkserver", case)
    assert (code, err) == (0, "")
    (server,) = json.loads(out.splitlines()[-1])
    assert psutil.wait_procs(alive(server), timeout=60.0)[1] == [], "what is stopped, the warden ends"


def alive(pid: int) -> list[psutil.Process]:
    """The process of that number, if there is one."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid)]
    return []

"""What environments start ends with the trainer, however that dies, and with their worker."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs.backends.troubles import DoingFamily, LeaveProcesses
from tests.envs.backends.workers.test_isolation import play, two_steps
from tests.envs.backends.workers.test_launch import launch
from utils.processes.marks import are_supported

pytestmark = pytest.mark.skipif(not are_supported(), reason="Linux only")

# So long a busy machine may take.
PATIENCE_S = 30.0
# Two workers leave processes; then one hangs, and the trainer waits for it.
TRAINER = """
from pathlib import Path
from tests.envs.backends.troubles import DoingFamily, LeaveProcesses

class LeaveAndHang(LeaveProcesses):
    def __call__(self):
        super().__call__()
        signal.pause()

def play():
    folder = Path(os.environ["RETRIAL_PROBE"])
    families = [DoingFamily(kind(folder)) for kind in (LeaveProcesses, LeaveAndHang)]
    config = BackendConfig(name=sys.argv[2], start_method=StartMethod[sys.argv[1]])
    factories = [lambda family=family: family for family in families]
    manager = ParallelEnvManager(factories, num_workers=2, backend=config)
    manager.reset()
    while True:
        manager.step(np.zeros((2, 2), np.float32))

if sys.argv[3] == "thread":
    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
else:
    play()
"""


def processes_of(folder: Path) -> list[int]:
    """The processes that have a folder in their command or in the environment that they were started with.

    Not this process, and not its resource tracker, which lives as long.
    """
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    own, found = {str(os.getpid()), str(tracker._pid)}, list[int]()
    for pid in {name for name in os.listdir("/proc") if name.isdigit()} - own:
        try:
            start = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if os.fsencode(folder) in start:
            found.append(int(pid))
    return found


def wait_until_none(folder: Path) -> list[int]:
    """The processes of a folder that do not end in time."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def wait_for_files(folder: Path, process: subprocess.Popen[str], count: int) -> None:
    """Wait until so many workers have left their processes."""
    while len(list(folder.glob("left-*"))) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="r") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("method", "backend", "where"),
    [
        ("forkserver", "process", "main"),
        ("spawn", "pipe", "thread"),
        ("fork", "process", "main"),
        ("fork", "pipe", "thread"),
    ],
)
def test_nothing_outlives_a_trainer_that_is_killed_and_no_file_either(
    method: str, backend: str, where: str, tmp_path: Path, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder with a short name: the path of the forkserver's socket has room for some hundred letters.
    temporary, probe = short_folder, tmp_path / "probe"
    probe.mkdir()
    monkeypatch.setenv("RETRIAL_PROBE", str(probe))
    monkeypatch.setenv("TMPDIR", str(temporary))
    with launch(tmp_path, TRAINER, method, backend, where) as process:
        wait_for_files(probe, process, 2)
        # The trainer, two workers, and of each two shells with their sleeps, two forks.
        deadline = time.monotonic() + PATIENCE_S
        while len(processes_of(probe)) < 3 + 2 * 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert wait_until_none(probe) == []
        deadline = time.monotonic() + PATIENCE_S
        while os.listdir(temporary) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.listdir(temporary) == []


def test_what_an_environment_leaves_ends_with_a_restart_of_its_worker_and_with_the_backend(
    tmp_path: Path,
) -> None:
    backend, faults = two_steps(DoingFamily(LeaveProcesses(tmp_path)))
    try:
        (worker,) = backend.processes()
        # Some of them are seen; a fork shows the environment of the forkserver, which may be older.
        assert not faults and processes_of(tmp_path)
        os.kill(worker, signal.SIGKILL)
        assert backend.restore(np.arange(2), 60.0) == []
        assert processes_of(tmp_path) == []
        assert play(backend) == [] and processes_of(tmp_path)
    finally:
        backend.close()
    assert processes_of(tmp_path) == []

"""The front door as a whole: closed streams, hasty Ctrl-C, and what environments in its process start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import main
from tests.envs.backends.test_faults_children import processes_of, wait_until_none
from utils.processes.marks import are_supported

pytestmark = pytest.mark.skipif(not are_supported(), reason="Linux only")

ROOT = Path(main.__file__).resolve().parent
# A run that lasts two iterations if nothing else is said.
TINY = (
    "train.n_env_steps_total=20 train.num_rollouts_per_iter=2 train.num_init_rollouts_pool=2 num_slots=2 "
    "env.max_rollouts_per_task=1 env.max_episode_steps=5 env.num_eval_tasks=2 agent.hidden=[16] "
    "memory.hidden_size=16 device=cpu wandb.mode=disabled hydra.run.dir=run"
)
ENDLESS = "train.n_env_steps_total=100_000_000"
WORKERS = "env=PointRobot backend=process num_parallel_workers=2"
# An environment that starts processes when it is built, and leaves them behind.
#
# One at a time: a fork of one thread holds on to the pipe by which a Popen of another waits for its exec.
LEAVING = """
import os
import threading
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

from tests.envs.backends.troubles import LeaveProcesses

ONE_AT_A_TIME = threading.Lock()

class Leaving(PendulumEnv):
    def __init__(self, **options):
        super().__init__(**options)
        with ONE_AT_A_TIME:
            LeaveProcesses(Path(os.environ["PROBE"]))()

gymnasium.register("Leaving-v0", Leaving)
"""


@contextmanager
def front_door(folder: Path, words: str, streams: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The real command in a folder, with streams as a shell writes them; in the end nothing of it is left."""
    given = {word.partition("=")[0] for word in words.split()}
    tiny = [word for word in TINY.split() if word.partition("=")[0] not in given]
    process = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            f'exec "$@" {streams}',
            "sh",
            sys.executable,
            f"{ROOT}/main.py",
            *words.split(),
            *tiny,
        ],
        cwd=folder,
        env=os.environ | {"PROBE": str(folder), "PYTHONPATH": f"{folder}:{ROOT}"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in processes_of(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until_it_trains(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while not (folder / "run/metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize("closed", ["<&- >console 2>&1", "<&- >&- 2>&-"], ids=["input", "all three"])
def test_a_run_does_without_the_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    with front_door(tmp_path, WORKERS, closed) as process:
        assert process.wait(120) == 0
    assert (tmp_path / "run/metrics.jsonl").exists()


def test_ctrl_c_in_quick_succession_ends_a_run_and_its_workers_without_a_traceback(tmp_path: Path) -> None:
    with front_door(tmp_path, f"{WORKERS} {ENDLESS}", ">console 2>&1") as process:
        wait_until_it_trains(tmp_path, process)
        for _ in range(5):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
            time.sleep(0.03)
        assert process.wait(120) == 128 + signal.SIGINT
        assert wait_until_none(tmp_path) == []
    assert "Traceback" not in (tmp_path / "console").read_text()


@pytest.mark.parametrize(
    ("backend", "ends_by"),
    [("backend=thread num_parallel_workers=2", None), ("backend=asyncio", signal.SIGTERM)],
)
def test_what_environments_in_this_process_start_ends_with_the_run(
    backend: str, ends_by: signal.Signals | None, tmp_path: Path
) -> None:
    """The check of the command line has built some of them before the run began."""
    (tmp_path / "leaving_env.py").write_text(LEAVING)
    words = f"env=Gymnasium env.id=leaving_env:Leaving-v0 {backend}"
    if ends_by is not None:
        words += f" {ENDLESS}"
    with front_door(tmp_path, words, ">console 2>&1") as process:
        wait_until_it_trains(tmp_path, process)
        if ends_by is not None:
            assert len(processes_of(tmp_path)) > 1
            process.send_signal(ends_by)
        assert process.wait(120) == (0 if ends_by is None else 128 + ends_by), (
            tmp_path / "console"
        ).read_text()
        assert wait_until_none(tmp_path) == []

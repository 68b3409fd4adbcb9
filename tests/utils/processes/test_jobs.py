"""What a run or a sweep has started ends with it: at its normal end, and a sweep's jobs also at a SIGKILL."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.envs.backends.test_faults_children import PATIENCE_S, processes_of, wait_until_none
from utils.processes.marks import are_supported

ROOT = Path(__file__).resolve().parents[3]
linux = pytest.mark.skipif(not are_supported(), reason="Linux only")

# A run whose environment, in this process, leaves processes, and which ends.
RUN = """
import sys
from multiprocessing import resource_tracker
from pathlib import Path
from tests.envs.backends.troubles import LeaveProcesses
from utils.processes import jobs, warden

jobs.end_with_this_process(also_if_killed=False)
resource_tracker.ensure_running()
LeaveProcesses(Path(sys.argv[1]))()
assert warden.warden_pid() is None
print("left", flush=True)
sys.exit(3)
"""
# A sweep whose job runs beside it and has marked workers of its own.
JOB = """
import os, signal
from pathlib import Path
from utils.processes.marks import put_mark
from utils.processes.warden import next_mark
from tests.envs.backends.troubles import LeaveProcesses

read, write = os.pipe()
if not (worker := os.fork()):
    os.read(read, 1)
    LeaveProcesses(Path(os.environ["PROBE"]))()
    signal.pause()
put_mark(worker, next_mark())
os.write(write, b" ")
signal.pause()
"""
SWEEP = """
import signal, subprocess, sys
from utils.processes.jobs import end_with_this_process

end_with_this_process(also_if_killed=True)
subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
signal.pause()
"""


@linux
def test_what_environments_in_this_process_start_ends_at_a_normal_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PROBE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("left\n", "", 3)
    assert wait_until_none(tmp_path) == []


def wait_for(folder: Path, pattern: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until there is a file of this pattern."""
    deadline = time.monotonic() + 4 * PATIENCE_S
    while not list(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@linux
def test_jobs_and_what_they_have_marked_themselves_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SWEEP, JOB], cwd=ROOT, env=os.environ | {"PROBE": str(tmp_path)}
    ) as sweep:
        wait_for(tmp_path, "left-*", sweep)
        assert len(processes_of(tmp_path)) >= 5
        sweep.kill()
    assert wait_until_none(tmp_path) == []


@linux
@pytest.mark.peers
@pytest.mark.parametrize(
    ("launcher", "option"), [("joblib", "n_jobs=2"), ("submitit_local", "timeout_min=9")]
)
def test_the_jobs_of_a_real_launcher_end_with_a_sweep_that_is_killed(
    launcher: str, option: str, tmp_path: Path
) -> None:
    pytest.importorskip(
        f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher",
        reason="pip install -c requirements.txt .[launchers]",
    )
    words = [
        *(
            "-m",
            f"hydra/launcher={launcher}",
            f"hydra.launcher.{option}",
            f"hydra.sweep.dir={tmp_path}/sweep",
        ),
        *("seed=0,1", "env=PointRobot", "backend=process", "num_parallel_workers=2", "num_slots=4"),
        *("train.n_env_steps_total=100_000_000", "wandb.mode=disabled"),
    ]
    with subprocess.Popen(
        [sys.executable, "main.py", *words],
        cwd=ROOT,
        env=os.environ | {"PROBE": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as sweep:
        for job in (0, 1):
            wait_for(tmp_path, f"sweep/{job}/config.yaml", sweep)
        sweep.kill()
    assert wait_until_none(tmp_path) == []

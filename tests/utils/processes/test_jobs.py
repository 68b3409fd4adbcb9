"""What a run or a sweep has started ends with it: at its normal end, and a sweep's jobs also at a SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
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

assert jobs.end_with_this_process()
assert not jobs.end_with_this_process(), "it is marked already"
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
from utils.processes.jobs import end_also_if_killed, end_with_this_process

end_with_this_process()
end_also_if_killed()
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
    deadline = time.monotonic() + 8 * PATIENCE_S  # a launcher starts several interpreters, with torch
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


# A sweep of two jobs with two workers each, which train until they are ended.
SWEEP_OF_RUNS = (
    "-m seed=0,1 env=PointRobot backend=process num_parallel_workers=2 num_slots=2 wandb.mode=disabled "
    "backend.keep_environment=[PROBE] train.n_env_steps_total=100_000_000 train.num_rollouts_per_iter=2 "
    "train.num_init_rollouts_pool=2 env.max_episode_steps=5 env.num_eval_tasks=2"
)


@linux
@pytest.mark.peers
@pytest.mark.parametrize(
    ("launcher", "option"), [("joblib", "n_jobs=2"), ("submitit_local", "timeout_min=9")]
)
def test_jobs_of_a_real_launcher_train_wherever_they_are_started_and_end_with_a_sweep_that_is_killed(
    launcher: str, option: str, tmp_path: Path
) -> None:
    pytest.importorskip(
        f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher",
        reason="pip install -c requirements.txt .[launchers]",
    )
    launching = [f"hydra/launcher={launcher}", f"hydra.launcher.{option}", "hydra.sweep.dir=sweep"]
    with (tmp_path / "console.txt").open("wb") as console:
        sweep = subprocess.Popen(
            [sys.executable, ROOT / "main.py", *SWEEP_OF_RUNS.split(), *launching],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            | {"PROBE": str(tmp_path)},
            stdout=console,
            stderr=console,
        )
    try:
        for job in (0, 1):
            wait_for(tmp_path, f"sweep/{job}/metrics.jsonl", sweep)
        # The workers of joblib's jobs are forks, which do not show their folder.
        assert len(processes_of(tmp_path)) >= 1 + 2 + 4 * (launcher != "joblib")
        sweep.kill()
        assert wait_until_none(tmp_path) == []
        # Joblib names what it shares by the number of the sweep, and its tracker removes it.
        assert [name for name in os.listdir("/dev/shm") if str(sweep.pid) in name] == []
    finally:
        sweep.kill()
        sweep.wait()
        for pid in processes_of(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

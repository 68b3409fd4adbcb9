"""Sweeps by real launchers: a preempted job loses nothing, and one that fails is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.envs.backends.test_faults_children import processes_of
from tests.runs import digest, metrics_of
from utils.checkpoint import CheckpointStore
from utils.run_lock import RunLock

# Each starts several interpreters with torch, one after another, which takes minutes on a busy machine.
pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[3]
# Runs of some seconds, with two worker processes each.
WORDS = (
    "env=PointRobot algorithm=SAC backend=process num_parallel_workers=2 backend.keep_environment=[PROBE] "
    "num_slots=4 train.num_rollouts_per_iter=4 train.num_init_rollouts_pool=2 train.updates_per_step=0.02 "
    "env.max_episode_steps=10 env.num_eval_tasks=2 agent.hidden=[16] "
    "memory.hidden_size=16 hydra.sweep.dir=sweep"
)
LAUNCHERS = {
    "joblib": "hydra/launcher=joblib hydra.launcher.n_jobs=2",
    "submitit_local": "hydra/launcher=submitit_local hydra.launcher.timeout_min=60",
}
PATIENCE_S = 500.0


@contextmanager
def sweep(folder: Path, words: str, wandb: str = "disabled") -> Iterator[subprocess.Popen[bytes]]:
    """The real command in a folder; in the end nothing of it is left."""
    folder.mkdir(exist_ok=True)
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(
            [sys.executable, ROOT / "main.py", "-m", *WORDS.split(), *words.split(), f"wandb.mode={wandb}"],
            cwd=folder,
            env=os.environ | {"PROBE": str(folder)},
            stdout=console,
            stderr=console,
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


def swept(folder: Path, words: str) -> tuple[int, str]:
    """(exit code, console) of a sweep."""
    with sweep(folder, words) as process:
        exit_code = process.wait(PATIENCE_S)
    return exit_code, (folder / "console").read_text()


def learned(run_dir: Path) -> dict[str, str]:
    """What a run has come to, with its random streams and counters."""
    checkpoint = CheckpointStore(run_dir / "checkpoints").latest()
    assert checkpoint is not None
    return {
        "tensors": digest(checkpoint.tensors),
        "streams": digest([checkpoint.facts["sampling"], checkpoint.facts["counters"]]),
        "metrics": digest(metrics_of(run_dir)),
    }


def process_of_the_job(folder: Path) -> psutil.Process:
    """The process in which submitit runs the job, and not the one that waits for it."""
    for pid in processes_of(folder):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if "submitit.core._submit" in process.cmdline():
                return process
    raise AssertionError("there is no job of submitit's")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_that_fails_is_named_and_the_sweep_typed_again_makes_what_is_missing(
    launcher: str, tmp_path: Path
) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    words = f"seed=0,1 train.n_env_steps_total=200 {LAUNCHERS[launcher]}"
    (tmp_path / "sweep" / "1").mkdir(parents=True)
    with RunLock(tmp_path / "sweep" / "1"):
        exit_code, console = swept(tmp_path, words)
    assert exit_code == 1
    _, _, failures = console.partition("Failed: 1 of 2 jobs.\n  [1] ")
    assert "seed=1" in failures and f"is in use by process {os.getpid()}" in failures
    first = learned(tmp_path / "sweep" / "0")
    assert console.count("sweep/report/report.md") == 1
    exit_code, console = swept(tmp_path, words)
    assert (exit_code, console.count("Failed: ")) == (0, 0), console
    assert learned(tmp_path / "sweep" / "0") == first
    assert "| 2     |" in console, "the report counts both seeds"


def test_a_preempted_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    """The signal reaches all processes of the job, as SLURM sends it."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    long = "seed=3 train.n_env_steps_total=4000"
    exit_code, console = swept(tmp_path / "plain", long)
    assert exit_code == 0, console
    preempted = tmp_path / "preempted"
    with sweep(preempted, f"{long} {LAUNCHERS['submitit_local']}", wandb="offline") as process:
        deadline = time.monotonic() + PATIENCE_S
        metrics = preempted / "sweep" / "0" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 10:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        job = process_of_the_job(preempted)
        for one in [*job.children(recursive=True), job]:
            with suppress(psutil.Error):
                one.send_signal(signal.SIGUSR2)
        assert process.wait(PATIENCE_S) == 0, (preempted / "console").read_text()
    (log,) = (preempted / "sweep" / ".submitit").glob("*/*_log.out")
    assert "goes on from its last checkpoint" in log.read_text()
    (log,) = (preempted / "sweep" / ".submitit").glob("*/*_log.err")
    told: Any = log.read_text()
    assert "this job is preempted" in told and "W&B failed" not in told and "restart" not in told, told
    assert learned(preempted / "sweep" / "0") == learned(tmp_path / "plain" / "sweep" / "0")

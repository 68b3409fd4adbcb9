"""The one command of the pages, as a newcomer types it: it serves, trains, and leaves no process behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.envs.remote.servers.real import ROOT

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")

SMALL = (
    "num_slots=4 env.num_eval_tasks=2 train.n_env_steps_total=256 train.num_env_steps_per_iter=128 "
    "evaluation.every=256 algorithm.minibatches=2 wandb.mode=disabled"
)
# A server is told of it too, since the name is one of ours.
MARK = "RETRIAL_TEST_MARK"


def marked(mark: str) -> Iterator[str]:
    """The commands of all processes with this mark, whoever their parent is by now."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield " ".join(process.cmdline())
        except psutil.Error:
            continue


def test_the_experiment_is_one_command_and_leaves_no_process_behind(tmp_path: Path) -> None:
    mark, folder = uuid.uuid4().hex, tmp_path / "run"
    command = [sys.executable, "main.py", "experiment=connect4", *SMALL.split(), f"hydra.run.dir={folder}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {MARK: mark}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    served = False
    while process.poll() is None:
        served = served or any("connect4:app" in one for one in marked(mark))
        time.sleep(0.2)
    assert process.stdout is not None
    told = process.stdout.read().decode()
    process.stdout.close()
    assert process.returncode == 0 and served, told

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    measured = {name: value for line in lines for name, value in line.items() if name.startswith("openenv/")}
    messages = [value for name, value in measured.items() if name.endswith("/messages")]
    assert messages and messages[0] > 256 and name_of_server(measured).startswith("127.0.0.1:")

    # Its helpers end with it, a moment later.
    deadline = time.monotonic() + 30.0
    while left := list(marked(mark)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def name_of_server(measured: dict[str, float]) -> str:
    (server,) = {name.split("/")[1] for name in measured}
    return server

"""The collection benchmark: a table of one row is measured, profiled and printed."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.learn import ROOT


def test_a_row_is_measured_and_its_round_taken_apart() -> None:
    command = ["--case", "toy", "--mode", "acting", "--slots", "2", "--rows", "serial", "--seconds", "0.05"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collect", *command, "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("Retrial serial")]
    assert len(rows) == 2, "one line of speed, one of where its round goes"

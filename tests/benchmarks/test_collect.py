"""The collection benchmark: a table of one row is measured, profiled and printed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.collect import chosen_tables
from benchmarks.learn import ROOT


@pytest.mark.parametrize("case", ["toy", "cyber"])
def test_a_row_is_measured_and_its_round_taken_apart(case: str) -> None:
    command = ["--case", case, "--mode", "acting", "--slots", "2", "--seconds", "0.05"]
    command += ["--rows", "Retrial serial", "batch-1"]
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
    assert "\nbatch-1 loop" in done.stdout and "failed" not in done.stdout
    # Only the published interface of CAGE-2 has true states to ask for.
    assert ("+ true states" in done.stdout) == (case == "cyber")


def test_the_cyber_game_brings_the_dear_steps_that_its_page_compares_it_with() -> None:
    def keys(*names: str, modes: list[str] | None = None) -> list[str]:
        return [table.key for table in chosen_tables(list(names), modes, None, (2,))]

    assert [key for key in keys("cyber") if "slow" in key] == keys("cyber-slow")
    assert keys("cyber") == keys("cyber", "cyber-slow")
    assert not [key for key in keys("cyber", modes=["acting"]) if "slow" in key], "it has no such tables"
    assert not [key for key in keys("toy") if "cyber" in key]
    whole = [table.key for table in chosen_tables(None, None, None, (2,))]
    assert len(whole) == len(set(whole))

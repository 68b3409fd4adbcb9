"""The tables of services: their targets, and one row of each, measured over a real server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from benchmarks.learn import ROOT
from benchmarks.parts.services.tables import BARE, OURS, SESSION, service_targets, services_text


def a_table(limit: float, **rates: float) -> dict[str, Any]:
    cpu = {name: 50.0 if name == SESSION else 40.0 for name in rates}
    return {
        "title": "a table",
        "load": 1.0,
        "limit": limit,
        "limit_is": "sessions / latency",
        "env_steps_per_s": rates,
        "own_cpu_us": cpu,
    }


def test_targets_are_shares_of_the_ideal_and_times_one() -> None:
    rates = {OURS: 95.0, SESSION: 90.0, BARE: 99.0}
    tables = {
        "openenv/10ms/1": a_table(100.0, **rates),
        "openenv/10ms/8": a_table(800.0, **rates),
        "openenv/20ms/64": a_table(3200.0, **rates),
        "openenv/collect": a_table(
            800.0, **{"1 of our clients, threads": 40.0, "8 of our clients, threads": 300.0}
        ),
    }
    found = {target.target: (target.reached, target.met) for target in service_targets(tables)}
    assert found["10 ms, 1 sessions, Retrial asyncio, of the ideal"] == (0.95, True)
    assert found["20 ms, 64 sessions, Retrial asyncio, of the ideal"][1] is False
    assert found["collect_with_stats, 8 threads, x one"] == (7.5, True)
    assert found["collect_with_stats, 2 threads, x one"] == (None, None)
    assert found["CPU of a step, 64 sessions, x bare websockets"] == (1.25, True)
    assert "Retrial asyncio" in services_text(tables["openenv/10ms/1"])


@pytest.mark.peers
def test_rows_are_measured_over_a_real_server() -> None:
    pytest.importorskip("openenv")
    command = ["--case", "openenv", "--rows", "bare", "our clients", "--seconds", "0.1", "--repeats", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collect", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(BARE) == 3 and "16 of our clients, async" in done.stdout
    assert "Written" not in done.stdout, "a part of the rows is no record"

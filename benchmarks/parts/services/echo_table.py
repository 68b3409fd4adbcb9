"""The Echo table of the published guide, scaled down: python -m benchmarks.parts.services.echo_table.

Episodes of 20 steps of 50 ms, played by 1 to 16 of our clients in threads; the guide plays 1,000 of them, and
here there are 32 of each kind. It needs openenv for the server, and takes a good minute.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.parts.machine import facts, write
from benchmarks.parts.services.rows import ACTION
from benchmarks.parts.services.tables import ECHO
from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from envs.remote.serving import ServedApp

RESULTS = Path("benchmarks/results/rollouts_echo.json")
# (clients, times one that the guide expects)
WORKERS = ((1, 1.0), (2, 1.8), (4, 3.5), (8, 6.0), (16, 7.0))
STEPS, WAIT_S = 20, 0.05


def _measured_rows(url: str, episodes: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each number of workers."""
    rows: list[dict[str, Any]] = []
    for workers, expected in WORKERS:
        clients = [HttpEnvClient(url) for _ in range(workers)]
        with ParallelRolloutCollector(execution_mode="thread", max_workers=workers) as collector:
            told = {"wait_s": WAIT_S, "length": STEPS}
            # The first episodes open the sessions.
            collector.collect_with_stats(clients, _hello, max_steps=1, reset_kwargs=told)
            began, cpu = perf_counter(), process_time()
            _, stats = collector.collect_with_stats(clients, _hello, episodes=episodes, reset_kwargs=told)
            took, cpu = perf_counter() - began, process_time() - cpu
        for client in clients:
            client.close()
        first = rows[0]["seconds"] if rows else took
        row = {"workers": workers, "seconds": took, "times_one": first / took, "the_guide_expects": expected}
        rows.append(row | {"steps": stats.total_steps, "own_cpu_us": 1e6 * cpu / stats.total_steps})
        say(f"{workers:3} workers: {took:6.2f} s, {first / took:5.2f} times one (the guide: {expected:g})")
    return rows


def _hello(observation: Any, done: bool) -> dict[str, Any]:
    return ACTION


def main() -> None:
    """Measure, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=32, help="episodes of each row (default: 32)")
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    chosen = parser.parse_args()
    server = ServedApp(ECHO)
    server.start()
    try:
        server.wait()
        before = os.getloadavg()[0]
        rows = _measured_rows(server.url, chosen.episodes, print)
    finally:
        server.end()
    write(
        chosen.output,
        {
            "date": datetime.date.today().isoformat(),
            "machine": facts(),
            "load_before_and_after": [before, os.getloadavg()[0]],
            "episodes": chosen.episodes,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()

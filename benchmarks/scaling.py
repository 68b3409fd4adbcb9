"""How stepping scales with the number of slots: speed, start-up, memory and descriptors of 1 to 1000 slots of
the toy.

    python -m benchmarks.scaling            everything, and benchmarks/results/scaling.json
    python -m benchmarks.scaling --slots 1 20 1000 --seconds 0.5
    python -m benchmarks.scaling --collector     the trainer's CPU for 1 to 64 actors that answer at once

Beside the backends with one worker per core stands the layout of one process per slot, as far as 50 of them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from benchmarks.collectors import trainer_table
from benchmarks.parts.cases import CASES, ENV_ONLY, EPISODES, HORIZON, Table
from benchmarks.parts.targets import Target, targets_text
from envs.backends.base import BackendConfig
from envs.parallel_env_manager import ParallelEnvManager
from utils.machine import available_cores

RESULTS = Path(__file__).parent / "results" / "scaling.json"
SLOTS = (1, 2, 4, 8, 16, 20, 50, 200, 1000)
MANY_PROCESSES = 50
SIX = 6
READY_WITHIN_S = 2.0


def layouts(slots: int) -> Iterator[tuple[str, str, int]]:
    """(name, backend, workers) of every way to step so many slots."""
    cores = min(available_cores(), slots)
    yield "serial", "serial", 1
    yield f"process, {cores} workers", "process", cores
    yield f"pipe, {cores} workers", "pipe", cores
    if cores < slots <= MANY_PROCESSES:
        yield f"process, one each ({slots})", "process", slots
        yield f"pipe, one each ({slots})", "pipe", slots


def measure_layout(slots: int, name: str, backend: str, workers: int, seconds: float) -> dict[str, Any]:
    """One layout: started, run and looked at."""
    from benchmarks.parts.retrial_rows import WARM_UP_S, Bench, Setting

    gc.collect()  # what was closed before is gone for good
    before, start = descriptors(), perf_counter()
    bench = Bench(Table(CASES["toy"], ENV_ONLY, slots), Setting(name, backend, workers), None, None)
    try:
        started = perf_counter() - start
        bench.run(WARM_UP_S)
        rate = bench.run(seconds)
        workers_seen = [psutil.Process(pid) for pid in bench.manager.pids]
        resident = [worker.memory_info().rss for worker in workers_seen]
        own = [worker.memory_full_info().uss for worker in workers_seen]
        return {
            "slots": slots,
            "layout": name,
            "backend": backend,
            "workers": len(workers_seen),
            "env_steps_per_s": rate,
            "start_s": started,
            "resident_mib_per_worker": statistics.mean(resident) / 2**20 if resident else None,
            "own_mib_per_worker": statistics.mean(own) / 2**20 if own else None,
            "descriptors": descriptors() - before,
            "workers_with_torch": sum(has_torch(worker) for worker in workers_seen),
        }
    finally:
        bench.close()


def descriptors() -> int:
    """Open descriptors of this process."""
    return psutil.Process().num_fds()


def has_torch(worker: psutil.Process) -> bool:
    """Whether a process has loaded torch's library."""
    return any("libtorch" in region.path for region in worker.memory_maps())


# -- how soon six workers are ready --------------------------------------------------------------------------


def six_workers_seconds(case: str, repeats: int) -> dict[str, float]:
    """Seconds until six workers have built their environments: in fresh programs, which have started no
    process before, and once more in each.
    """
    first, again = [], []
    for _ in range(repeats):
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.scaling", "--ready", case],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        one, other = map(float, out.stdout.split())
        first.append(one)
        again.append(other)
    return {"first_s": statistics.median(first), "again_s": statistics.median(again)}


def _print_ready(case: str) -> None:
    for _ in range(2):
        start = perf_counter()
        with ParallelEnvManager(
            CASES[case].family(),
            2 * SIX,
            episodes_per_trial=EPISODES,
            max_episode_steps=HORIZON,
            num_workers=SIX,
            backend=BackendConfig(name="process"),
        ):
            print(perf_counter() - start)


# -- the table -----------------------------------------------------------------------------------------------


def scaling_targets(rows: list[dict[str, Any]], ready: dict[str, dict[str, float]]) -> list[Target]:
    """What more slots and more workers may cost at most, and what they cost."""
    # Descriptors are compared over the rows that have one worker per core: they differ in their slots alone.
    shared = [
        row["descriptors"]
        for row in rows
        if row["backend"] == "process"
        and "one each" not in row["layout"]
        and row["workers"] == available_cores()
    ]
    growth = max(shared) - min(shared) if shared else None
    with_torch = sum(row["workers_with_torch"] for row in rows)
    targets = [
        Target("descriptors by which more slots exceed few, one worker per core", 0, growth, at_most=True),
        Target("workers that have loaded torch", 0, with_torch, at_most=True),
    ]
    for case, seconds in ready.items():
        name = f"six workers ready, {CASES[case].title}, in a fresh program"
        again = f"and {seconds['again_s']:.2f} s once more"
        targets.append(Target(name, READY_WITHIN_S, seconds["first_s"], "s", at_most=True, note=again))
    return targets


def row_text(row: dict[str, Any]) -> str:
    """One line of the table."""
    line = f"{row['slots']:6}  {row['layout']:26}{row['env_steps_per_s']:12,.0f}{row['start_s']:10.2f}"
    line += f"{row['descriptors']:13}"
    if row["own_mib_per_worker"] is not None:
        line += f"{row['resident_mib_per_worker']:10.0f}{row['own_mib_per_worker']:8.0f}"
    return line


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slots", nargs="+", type=int, default=list(SLOTS))
    parser.add_argument("--seconds", type=float, default=2.0, help="of every row")
    parser.add_argument("--repeats", type=int, default=3, help="fresh programs that start six workers")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"default: {RESULTS.name} in benchmarks/results for all slots, nowhere for some",
    )
    parser.add_argument("--collector", action="store_true", help="what actors cost the trainer, alone")
    parser.add_argument("--ready", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collector:
        trainer_table()
        return
    if options.ready:
        _print_ready(options.ready)
        return
    from benchmarks.parts.machine import facts, write

    planned = [(slots, layout) for slots in options.slots for layout in layouts(slots)]
    print(facts()["text"])
    expected_s = len(planned) * (options.seconds + 0.8) + 15 * options.repeats
    print(f"{len(planned)} rows, about {expected_s / 60:.0f} minutes.", flush=True)
    ready = {case: six_workers_seconds(case, options.repeats) for case in ("toy", "ant")}
    print(
        f"{'slots':>6}  {'1 us toy, env-only':26}{'env-steps/s':>12}{'start s':>10}"
        f"{'descriptors':>13}{'MiB each':>10}{'own':>8}"
    )
    rows: list[dict[str, Any]] = []
    for slots, layout in planned:
        rows.append(measure_layout(slots, *layout, options.seconds))
        print(row_text(rows[-1]), flush=True)
    targets = scaling_targets(rows, ready)
    print(targets_text(targets))
    output = options.output or (RESULTS if options.slots == list(SLOTS) else None)
    if output is not None:
        reached = [target.as_json() for target in targets]
        write(output, {"machine": facts(), "targets": reached, "six_workers": ready, "rows": rows})


if __name__ == "__main__":
    main()

"""Collecting in parallel: env-steps per second of every way to step, Retrial's and its peers', side by side
in one run.

    python -m benchmarks.collect                              everything, and benchmarks/results/collect.json
    python -m benchmarks.collect --case ant --slots 12 64     some of it; saved where --output says
    python -m benchmarks.collect --case toy --mode env-only --rows process --seconds 1 --repeats 1
    python -m benchmarks.collect --case openenv               services; it needs the partners' environment

limit = cores / (CPU seconds of the bare env-step, with all cores busy + CPU seconds of inference per
env-step); for MuJoCo the env-step is `mj_step` replayed from this run's states. Where environments wait it is
slots / latency. All rows of a table are open at the same time and take turns, in the middle of long waves of
trials: resets count, the last rounds of a wave do not. Peers: `pip install .[peers]`.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.parts.cases import Table

# Everything else is imported in main(): the processes that some rows and the limit spawn import this module
# again, and need none of it.

RESULTS = Path(__file__).parent / "results" / "collect.json"
# Services have clients in place of environments, so they have tables of their own.
SERVICES = "openenv"
# A case and what is measured with it, since a page and targets compare the two in one run.
TOGETHER = {"cyber": "cyber-slow"}


def parsed() -> argparse.Namespace:
    """The command line."""
    from benchmarks.parts.cases import ACTING, CASES, ENV_ONLY

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", choices=[*CASES, SERVICES])
    parser.add_argument("--mode", nargs="+", choices=[ACTING, ENV_ONLY])
    parser.add_argument("--slots", nargs="+", type=int)
    parser.add_argument(
        "--workers",
        nargs="+",
        type=int,
        help="worker counts of the process rows; default: 2, one per core, 6",
    )
    parser.add_argument("--rows", nargs="+", default=[], help="only rows with one of these in their name")
    parser.add_argument("--seconds", type=float, default=3.0, help="of every row, in each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--output",
        type=Path,
        help=f"default: {RESULTS.name} in benchmarks/results for a whole run, nowhere for a part of it",
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print, save."""
    import torch

    from benchmarks.parts.collection_targets import collection_targets
    from benchmarks.parts.machine import facts, write
    from benchmarks.parts.targets import targets_text
    from utils.machine import available_cores

    options = parsed()
    if options.case == [SERVICES]:
        _measure_services(options)
        return
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a process per environment needs many
    workers = tuple(options.workers or (2, available_cores(), 6))
    chosen = chosen_tables(options.case, options.mode, options.slots, workers)
    print(facts()["text"])
    done = _measure_all(chosen, options)
    targets = collection_targets(done)
    print(targets_text(targets))
    whole = not (options.case or options.mode or options.slots or options.workers or options.rows)
    output = options.output or (RESULTS if whole else None)
    if output is not None:
        settings = {"seconds": options.seconds, "repeats": options.repeats}
        reached = [target.as_json() for target in targets]
        write(output, {"machine": facts(), "settings": settings, "targets": reached, "tables": done})


def _measure_services(options: argparse.Namespace) -> None:
    from benchmarks.parts.machine import facts, write
    from benchmarks.parts.services.tables import measure_services, service_targets, services_text
    from benchmarks.parts.targets import targets_text

    print(facts()["text"])
    done = measure_services(
        options.seconds, options.repeats, options.rows, lambda text: print(text, flush=True)
    )
    for table in done.values():
        print(services_text(table))
    targets = service_targets(done)
    print(targets_text(targets))
    output = options.output or (None if options.rows else RESULTS.with_name("collect_openenv.json"))
    if output is not None:
        settings = {"seconds": options.seconds, "repeats": options.repeats}
        reached = [target.as_json() for target in targets]
        write(output, {"machine": facts(), "settings": settings, "targets": reached, "tables": done})


def chosen_tables(
    names: list[str] | None, modes: list[str] | None, slots: list[int] | None, workers: tuple[int, ...]
) -> list[Table]:
    """The tables that are asked for, and those that belong to them, in the modes that these have."""
    from benchmarks.parts.cases import CASES, tables

    chosen = list(tables(names, modes, slots, workers))
    for name in names or ():
        other = TOGETHER.get(name)
        if other is not None and other not in (names or ()):
            shared = [mode for mode in modes or CASES[other].slots if mode in CASES[other].slots]
            if shared:
                chosen += tables([other], shared, slots, workers)
    return chosen


def _measure_all(chosen: list[Table], options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.parts.measure import expected_seconds, measure_table
    from benchmarks.parts.report import table_text

    expected = {
        table.key: expected_seconds(table, options.seconds, options.repeats, options.rows) for table in chosen
    }
    print(f"{len(chosen)} tables, about {sum(expected.values()) / 60:.0f} minutes.", flush=True)
    done: dict[str, Any] = {}
    for table in chosen:
        start = perf_counter()
        print(f"{table.key}: about {expected[table.key]:.0f} s ...", flush=True)
        done[table.key] = measure_table(
            table, options.seconds, options.repeats, options.rows, lambda text: print(text, flush=True)
        )
        done[table.key]["took_s"] = perf_counter() - start
        print(table_text(done[table.key]), flush=True)
    return done


if __name__ == "__main__":
    main()

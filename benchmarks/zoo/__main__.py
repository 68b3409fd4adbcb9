"""Record the zoo: one run of every default, the cheapest first, into benchmarks/results/zoo and docs/zoo.md.

    python -m benchmarks.zoo                       what is missing, or recorded with other settings
    python -m benchmarks.zoo Wind --seeds 0 1 2    some entries, with these seeds
    python -m benchmarks.zoo --hours 2             no run that would end later is begun
    python -m benchmarks.zoo --minutes 5           at most so many minutes of a core for every run
    python -m benchmarks.zoo --show                what is missing or has other settings; nothing is run

Runs are played one after another, as `main.py` plays them, and each is stored when it has ended, so this may
be stopped at any time and typed again. A run that has had its minutes is stored as far as it came; it goes on
from there when it is given more, as long as its folder is there. `nice -n 19` in front of the command leaves
the cores to others.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.console import Console

from benchmarks.learn import FILE_WIDTH, Recipe, play_recipe
from benchmarks.zoo.entries import ENTRIES, Entry, Recording, digest, is_installed, jobs_of
from benchmarks.zoo.page import write_page
from benchmarks.zoo.records import (
    Recorded,
    commit,
    is_enough,
    is_long,
    keep_agent,
    levels_of_run,
    load_entry,
    minutes_left,
    name_of,
    save_beside,
    store,
    unfinished,
)
from policies.run.config import RECORD, read_record
from policies.run.forecast import learned_digest
from utils.options import nearest

FOLDER = Path("outputs/zoo")
# The curve of a default is worth so much of a core.
ENOUGH_MIN = 45.0


def entry_named(name: str) -> Entry:
    """The entry of this name; an argparse type."""
    found = next((entry for entry in ENTRIES if entry.name == name), None)
    if found is None:
        names = [entry.name for entry in ENTRIES]
        raise argparse.ArgumentTypeError(f"the zoo has no entry {name}.{nearest(name, names)}")
    return found


def left_to_record(entries: list[Entry], minutes: float) -> list[tuple[float, Recording]]:
    """The runs that are missing, have other settings by now or have had fewer minutes; each after the minutes
    that it will take, the cheapest first.
    """
    left = [
        (minutes_left(job, runs, minutes, _minutes_had(job)), job)
        for entry in entries
        for runs in [load_entry(entry)]
        for job in jobs_of(entry)
        if not is_enough(job, runs, minutes)
    ]
    return sorted(left, key=lambda one: one[0])


def _minutes_had(job: Recording) -> float:
    found = unfinished(job, FOLDER)
    return found[0].minutes if found else 0.0


def record(job: Recording, console: Console, minutes: float) -> tuple[Recorded, Path]:
    """Play one run as a user would, to its end or for so many minutes; one that had fewer goes on."""
    # The commit is that of the code which begins to run.
    begun, settings, before = commit(), digest(job.words), None
    found = unfinished(job, FOLDER)
    if found is not None:
        begun, before = found[0].commit, (found[0].run, found[1])
        if is_long(found[0], minutes):
            return found
        minutes -= found[0].minutes
    run, folder = play_recipe(name_of(job), Recipe(job.words), job.seed, console, FOLDER, minutes, before)
    learned = learned_digest(read_record(folder / RECORD))
    recorded = Recorded(run, settings, begun, learned, levels_of_run(folder))
    save_beside(recorded, folder)
    return recorded, folder


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", type=entry_named, help="entries; default: all")
    parser.add_argument("--seeds", nargs="+", type=int, help="instead of those that the entry has")
    parser.add_argument("--hours", type=float, help="begin no run that is expected to end later")
    parser.add_argument(
        "--minutes",
        type=float,
        default=ENOUGH_MIN,
        help="of a core for each run at most, those that it has had before included; default: %(default)s",
    )
    parser.add_argument("--show", action="store_true", help="run nothing")
    return parser.parse_args()


def _entries(asked: argparse.Namespace, console: Console) -> list[Entry]:
    """What is to be recorded, as far as it is installed."""
    found = list[Entry]()
    for entry in asked.names or ENTRIES:
        if not is_installed(entry):
            console.print(f"{entry.name} is left out: it needs the package {entry.needs}.")
            continue
        found.append(entry if asked.seeds is None else replace(entry, seeds=tuple(asked.seeds)))
    return found


def main() -> None:
    """Record, and write the page."""
    asked, console = _parsed(), Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    jobs, began = left_to_record(_entries(asked, console), asked.minutes), perf_counter()
    for number, (minutes, job) in enumerate(jobs, 1):
        title = f"{number} of {len(jobs)}: {job.entry.name}, {job.label}, some {minutes:.0f} minutes"
        if asked.show:
            console.print(title)
            continue
        if asked.hours is not None and perf_counter() - began + 60 * minutes > 3600 * asked.hours:
            console.print(f"{len(jobs) - number + 1} runs are left, of some {minutes:.0f} minutes and more.")
            break
        console.rule(title)
        recorded, folder = record(job, console, asked.minutes)
        if not recorded.run.curve:
            console.print("It was ended before its first evaluation: give it more --minutes.")
            continue
        if store(job, recorded):
            keep_agent(job, folder)
        write_page()
    write_page()
    console.print("The page is docs/zoo.md.")


if __name__ == "__main__":
    main()

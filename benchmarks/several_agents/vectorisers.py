"""Vector environments of PettingZoo side by side: simple_spread of mpe2 in eight environments.

    python -m benchmarks.several_agents.vectorisers                     all but AgileRL's
    python -m benchmarks.several_agents.vectorisers --agilerl PYTHON    AgileRL's too, by its interpreter
    python -m benchmarks.several_agents.vectorisers --output FILE.json

Rows take turns, each in a process of its own. CPU is that of the process and its workers for an env step (a
cycle of all three agents), which a busy machine changes less than the rate. `of plain`: env steps for the
same CPU, beside the plain loop. `x AgileRL`: the rate, beside AgileRL's. The packages are those of
requirements-partners.txt. AgileRL asks for an older PettingZoo: `pip install agilerl` in an environment of
its own, and its `bin/python` here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.parts.machine import facts, write
from benchmarks.several_agents.one_vectoriser import ROWS

SCRIPT = Path(__file__).with_name("one_vectoriser.py")
PLAIN, AGILERL = "plain loop", "AgileRL, 8 processes"


def turns(interpreters: dict[str, str], seconds: float, repeats: int) -> dict[str, list[dict[str, float]]]:
    """What each row measured in each turn."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in interpreters}
    for _ in range(repeats):
        for name, python in interpreters.items():
            command = [python, str(SCRIPT), name, str(seconds)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=60 + 20 * seconds
            )
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return found


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agilerl", help="the Python interpreter of an environment that has AgileRL")
    parser.add_argument("--seconds", type=float, default=4.0, help="of every row, in each turn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    interpreters = {name: options.agilerl if name == AGILERL else sys.executable for name in ROWS}
    found = turns(
        {name: python for name, python in interpreters.items() if python}, options.seconds, options.repeats
    )
    machine, table = facts(), {}
    print(machine["text"])
    print(f"{'':<28}{'env steps/s':>12}{'CPU us':>9}{'of plain':>10}{'x AgileRL':>11}")
    for name, rows in found.items():
        table[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        # Ratios are those of one turn, since the machine changes from turn to turn.
        for column, key, other in (
            ("steps_per_cpu_of_plain", "cpu_us", PLAIN),
            ("rate_x_agilerl", "env_steps_per_s", AGILERL),
        ):
            pairs = zip(found.get(other, []), rows, strict=False)
            ratios = [ours[key] / theirs[key] for theirs, ours in pairs]
            ratio = statistics.median(ratios) if ratios else math.nan
            table[name][column] = 1 / ratio if key == "cpu_us" else ratio
        row = table[name]
        print(f"{name:<28}{row['env_steps_per_s']:12,.0f}{row['cpu_us']:9.0f}", end="")
        print(f"{row['steps_per_cpu_of_plain']:10.2f}{row['rate_x_agilerl']:11.2f}")
    if options.output is not None:
        settings = {"seconds": options.seconds, "repeats": options.repeats}
        write(options.output, {"machine": machine, "settings": settings, "rows": table, "turns": found})


if __name__ == "__main__":
    main()

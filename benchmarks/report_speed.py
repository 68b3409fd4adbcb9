"""How long a report over many short runs takes: `python -m benchmarks.report_speed`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from policies.run.config import FORMAT, RECORD

COMMAND = Path(__file__).resolve().parent.parent / "main.py"
# An evaluation of a short run: tasks of a list, episodes of a trial, and one in so many lines.
TASKS, EPISODES, EVERY = 40, 2, 4


def make_runs(folder: Path, runs: int, seeds: int, evaluations: int) -> None:
    """Write folders as runs of the default config leave them, with random numbers."""
    shown = subprocess.run([sys.executable, str(COMMAND), "--cfg", "job"], check=True, capture_output=True)
    settings = {"format": FORMAT} | yaml.safe_load(shown.stdout)
    rng = np.random.default_rng(0)
    for number in range(runs):
        settings["seed"] = number % seeds
        settings["algorithm"]["learning_rate"] = 1e-4 * (1 + number // seeds)
        settings["train"]["n_env_steps_total"] = 1000 * EVERY * evaluations
        run = folder / str(number)
        run.mkdir()
        (run / RECORD).write_text(yaml.safe_dump(settings, sort_keys=False))
        lines = [_line(rng, index + 1) for index in range(EVERY * evaluations)]
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _line(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """A line of metrics; every fourth holds an evaluation."""
    line: dict[str, Any] = {"env_steps": 1000 * number, "time/seconds": 2.0 * number}
    line |= {f"loss/{index}": rng.random() for index in range(30)}
    if number % EVERY == 0:
        table = rng.normal(number / 10, size=(TASKS, EPISODES))
        for episode, mean in enumerate(table.mean(0)):
            line[f"eval/held_out/return_episode_{episode + 1}"] = float(mean)
        line["eval/held_out/returns"] = table.tolist()
    return line


def main() -> None:
    """Make the folders, and time the command over them, its start included."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make_runs(Path(name), options.runs, options.seeds, options.evaluations)
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, str(COMMAND), f"report={name}"], check=True, stdout=subprocess.DEVNULL
        )
        print(f"A report over {options.runs} runs took {time.perf_counter() - start:.1f} s.")


if __name__ == "__main__":
    main()

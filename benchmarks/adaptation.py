"""How much an agent adapts within a trial, beside one that is told the task and one without a memory.

    python -m benchmarks.adaptation RUN --told RUN --control RUN
    python -m benchmarks.adaptation RUN --told RUN --control RUN --by 0 --output FILE.json

The three runs differ in nothing but `env.oracle=true` (told) and `agent=Markov` (the control), and each has
been evaluated last (`python main.py evaluate=RUN`). What is read is the return of every test task in every
episode, of which the first and the last are compared task by task: a gain is the mean of their differences,
with its standard error over tasks. The gap is what the told agent returns, on average over its episodes, more
than the first agent in its first episode, and the part is the gain over the gap. `--by 0` tells the same
apart for each value of the task's first number. `--sampled` reads the returns of sampled actions in place of
those of the likeliest (`evaluation.stochastic=true`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learn import METRICS
from benchmarks.parts.curves import point_of
from benchmarks.parts.machine import facts, write
from policies.evaluation.outcome import EVALUATION
from policies.evaluation.table import STOCHASTIC, task_returns
from policies.run.config import RECORD, TASKS, read_record
from utils.disk.own_files import read_object
from utils.options import OptionError

# What one run of the three may have of its own.
_OWN = ("oracle",)
# Of a file with the returns, or the numbers, of some thousand tasks.
MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class ReturnsOfTasks:
    """The last evaluation of a run on its test list."""

    folder: Path
    settings: Mapping[str, Any]
    # [tasks, task_dim] and [tasks, k].
    tasks: NDArray[np.float64]
    returns: NDArray[np.float64]
    env_steps: int

    @classmethod
    def of(cls, folder: Path, *, sampled: bool = False) -> ReturnsOfTasks:
        """What stands in a folder; a sentence where it was not evaluated so on the list that it records."""
        found, lists = (read_object(folder / name, MOST_BYTES) for name in (EVALUATION, TASKS))
        # The test list is the last one.
        key = ([name for name in lists if name.startswith("evaluation_")] or [""])[-1]
        returns = task_returns(found, key.removeprefix("evaluation_") + STOCHASTIC * sampled)
        tasks = np.array(lists.get(key, []), float)
        if not len(tasks) or len(returns) != len(tasks):
            how = f"evaluate={folder}" + " evaluation.stochastic=true" * sampled
            raise OptionError(f"{folder} was not evaluated last on its test list: use {how}.")
        return cls(folder, read_record(folder / RECORD), tasks, returns, found["env_steps"])


@dataclass(frozen=True)
class TaskMean:
    """A mean over tasks, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> TaskMean:
        """Of one number for each task."""
        return cls(float(values.mean()), float(values.std() / math.sqrt(len(values))))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}"


def check_alike(one: ReturnsOfTasks, other: ReturnsOfTasks) -> None:
    """Runs are compared task by task, so all but what they are compared for has to be the same."""
    for part in ("env", "train", "algorithm", "seed"):
        mine, theirs = one.settings[part], other.settings[part]
        if part == "env":
            mine, theirs = ({name: env[name] for name in env if name not in _OWN} for env in (mine, theirs))
        if mine != theirs:
            raise OptionError(f"{one.folder} and {other.folder} differ in their settings of {part}.")
    if not np.array_equal(one.tasks, other.tasks):
        raise OptionError(f"{one.folder} and {other.folder} were evaluated on different tasks.")


def adaptation_of(
    runs: Mapping[str, ReturnsOfTasks], chosen: NDArray[np.bool_] | slice = slice(None)
) -> dict[str, Any]:
    """By run: the episodes and the gain; and the gap to the told agent, on these tasks."""
    found: dict[str, Any] = {}
    for name, run in runs.items():
        returns = run.returns[chosen]
        episodes = [TaskMean.of(column) for column in returns.T]
        found[name] = {"episodes": episodes, "gain": TaskMean.of(returns[:, -1] - returns[:, 0])}
    first = runs["memory"].returns[chosen][:, 0]
    found["gap"] = gap = TaskMean.of(runs["told"].returns[chosen].mean(axis=1) - first)
    # Where the told agent is no better there is no gap, and nothing is a part of it.
    found["part"] = found["memory"]["gain"].mean / gap.mean if gap.mean > 0 else None
    return found


def adaptation_text(title: str, runs: Mapping[str, ReturnsOfTasks], found: Mapping[str, Any]) -> str:
    """A line for each run, and one on the gap."""
    lines = [f"{title:<20}{'first episode':>20}{'last episode':>20}{'gain':>20}{'in errors':>12}"]
    for name in runs:
        one = found[name]
        gain, cells = one["gain"], [one["episodes"][0], one["episodes"][-1], one["gain"]]
        # Returns that are all equal have no error, and no gain either.
        ratio = gain.mean / gain.error if gain.error else 0.0
        lines.append(f"{name:<20}" + "".join(f"{cell!s:>20}" for cell in cells) + f"{ratio:12.1f}")
    part = "" if found["part"] is None else f"; the gain is {found['part']:.0%} of it"
    lines.append(f"the gap to the told agent is {found['gap']}{part}")
    return "\n".join(lines)


def curve_of(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a run's training."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    points = [point for line in lines if (point := point_of(json.loads(line))) is not None]
    kept = ("env_steps", "seconds", "returns")
    return [{name: value for name, value in asdict(point).items() if name in kept} for point in points]


def main(arguments: list[str] | None = None) -> None:
    """Read, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="of the agent that has to find the task out")
    parser.add_argument("--told", type=Path, required=True, help="the same with env.oracle=true")
    parser.add_argument("--control", type=Path, required=True, help="the same with agent=Markov")
    parser.add_argument("--by", type=int, help="a number of the task, by whose values to tell tasks apart")
    parser.add_argument("--sampled", action="store_true", help="the returns of sampled actions")
    parser.add_argument("--output", type=Path, help="save the numbers and the curves here, too")
    asked = parser.parse_args(arguments)
    folders = {"memory": asked.run, "told": asked.told, "control": asked.control}
    try:
        runs = {name: ReturnsOfTasks.of(folder, sampled=asked.sampled) for name, folder in folders.items()}
        for other in ("told", "control"):
            check_alike(runs["memory"], runs[other])
    except OptionError as error:
        parser.error(str(error))
    groups: dict[str, Any] = {"all": slice(None)}
    if asked.by is not None:
        column = runs["memory"].tasks[:, asked.by]
        groups |= {f"{value:g}": column == value for value in np.unique(column)}
    found = {name: adaptation_of(runs, chosen) for name, chosen in groups.items()}
    for name, one in found.items():
        print(adaptation_text(f"tasks: {name}", runs, one))
    if asked.output is not None:
        facts_of_runs = {
            name: {"env_steps": run.env_steps, "curve": curve_of(run.folder)} for name, run in runs.items()
        }
        tasks = len(runs["memory"].tasks)
        write(asked.output, {"machine": facts(), "tasks": tasks, "runs": facts_of_runs, "adaptation": found})


if __name__ == "__main__":
    main()

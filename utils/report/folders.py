"""Run folders as data: where runs are, what each was set to, how far it came, and how it was evaluated.

Folders are only read, and what is read is never executed or interpolated: a run that is training, was
interrupted or has failed is a run like any other.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utils.disk.own_files import read_object
from utils.disk.plain_yaml import read_plain_yaml
from utils.options import OptionError

# What a run folder consists of is decided in policies/run/config.py; a test compares these with it.
_RECORD, _FORMAT = "config.yaml", 2
_METRICS, _TRACEBACK, _USED = "metrics.jsonl", "error.log", "used.json"
# What changes what is learned, and follows from other options or the family where it is not given.
_LEFT_OPEN = ("num_slots", "wave_trials", "wave_env_steps", "encoders")
# Folders that hold no runs, though another program may keep a config.yaml of its own in them.
_OTHERS = {"wandb", "checkpoints", "report", "__pycache__"}
# By preference: the list of test tasks. Evaluation on the training list answers another question.
_LISTS = ("held_out", "in_distribution")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a run on its list of test tasks."""

    env_steps: int
    # Of the run's clock, the processes before a resume included.
    seconds: float
    # [k] by episode index: means over the tasks.
    returns: NDArray[np.float64]
    # [tasks, k]; None in folders that hold the means alone.
    by_task: NDArray[np.float64] | None

    @property
    def trial_return(self) -> float:
        """The sum over the episodes of a trial."""
        return math.fsum(self.returns)


@dataclass(frozen=True)
class RunFolder:
    """What a report reads of one run folder."""

    folder: Path
    # Every option by its dotted name, as the run recorded it.
    settings: Mapping[str, Any]
    env_steps: int
    evaluations: tuple[Evaluation, ...]
    # The list of tasks that it was evaluated on: "held_out", or where splits overlap "in_distribution".
    tasks: str
    # What an oracle and random actions return in an episode of that list, by what to call it.
    levels: Mapping[str, float]
    # What options that were left open amounted to, by what to call it; empty where that is not recorded.
    used: Mapping[str, Any] = field(default_factory=dict)
    # What is wrong with it, in words; empty where nothing is.
    remarks: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The root of its random streams."""
        return self.settings["seed"]

    @property
    def total(self) -> int:
        """The env steps that it is to train for."""
        return self.settings["train.n_env_steps_total"]

    @property
    def finished(self) -> bool:
        """Whether its last evaluation stands at the end of its training."""
        return bool(self.evaluations) and self.evaluations[-1].env_steps >= self.total


@dataclass(frozen=True)
class Found:
    """The runs below some folders, and what looked like a run and could not be read, with the reason."""

    runs: tuple[RunFolder, ...]
    left_out: tuple[tuple[Path, str], ...]


class _UnreadableError(ValueError):
    """A folder that is no run for a report; the text says why."""


def find_runs(places: Iterable[Path]) -> Found:
    """The runs in these folders, which are runs themselves or hold runs at any depth; each is read once."""
    runs: dict[Path, RunFolder] = {}
    left_out: dict[Path, str] = {}
    for place in places:
        for folder in _folders_of_runs(place):
            # Two of the given places may hold the same run.
            known = folder.resolve()
            if known in runs or known in left_out:
                continue
            try:
                runs[known] = _read(folder)
            except _UnreadableError as reason:
                left_out[known] = str(reason)
    found = Found(tuple(runs.values()), tuple(left_out.items()))
    if not found.runs:
        raise OptionError(_nothing_found(places, found))
    return found


def _nothing_found(places: Iterable[Path], found: Found) -> str:
    where = " and ".join(map(str, places))
    if not found.left_out:
        return f"There is no run in {where}: a run's folder holds a {_RECORD}."
    folder, reason = found.left_out[0]
    more = len(found.left_out) - 1
    others = f" ({more} more cannot be read either)" if more else ""
    return f"No run in {where} can be read: {folder}: {reason}{others}."


def _folders_of_runs(place: Path) -> Iterator[Path]:
    """Run folders below a place, in the order of a person: job 10 after job 9. Links are not followed."""
    for folder, inside, files in os.walk(place):
        # A job that failed before it recorded anything has only what Hydra wrote.
        if _RECORD in files or ".hydra" in inside:
            inside.clear()
            yield Path(folder)
        inside[:] = sorted((name for name in inside if _may_hold_runs(name)), key=_by_number)


def jobs_not_begun(place: Path) -> int:
    """How many jobs of the sweep in a folder have no folder of their own, as far as its record tells.

    The basic sweeper runs each combination of the values between commas. What a function gives, as
    `range(3)`, only Hydra knows: then nothing is said.
    """
    record = place / "multirun.yaml"
    try:
        words = read_plain_yaml(record)["hydra"]["overrides"]["task"]
        values = [word.partition("=")[2] for word in words]
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0  # no sweep, or not as Hydra records one
    if any("(" in value for value in values):
        return 0
    # Commas in a list or in quotes are not between values.
    counts = [len(re.sub(r"\[.*?\]|'.*?'|\".*?\"", "", value).split(",")) for value in values]
    begun = sum(1 for folder in place.iterdir() if folder.name.isdecimal() and folder.is_dir())
    return max(math.prod(counts) - begun, 0)


def _may_hold_runs(name: str) -> bool:
    return not name.startswith(".") and name not in _OTHERS


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isdecimal() else (-1, name)


def _read(folder: Path) -> RunFolder:
    settings = _settings(folder)
    evaluations, env_steps, tasks, remarks = _metrics(folder / _METRICS)
    record = read_object(folder / _USED)
    used = {f"{name} (used)": record[name] for name in _LEFT_OPEN if type(record.get(name)) in (int, str)}
    run = RunFolder(folder, settings, env_steps, evaluations, tasks, _levels(record), used, remarks)
    if run.finished:
        return run
    # Whether it trains at this moment cannot be seen from its files; that it failed, can.
    how = "running or interrupted"
    if (folder / _TRACEBACK).exists():
        how = f"failed, see its {_TRACEBACK}"
    far = f"unfinished ({how}): {env_steps:,} of {run.total:,} env steps"
    return replace(run, remarks=(far, *remarks))


# -- the config ----------------------------------------------------------------------------------------------


def _settings(folder: Path) -> dict[str, Any]:
    """Every option of a run by its dotted name."""
    record = folder / _RECORD
    if not record.is_file():
        raise _UnreadableError(f"it has no {_RECORD}: its run has not begun, or failed before it could")
    try:
        values = read_plain_yaml(record)
    except ValueError as error:
        raise _UnreadableError(f"its {_RECORD} cannot be read: {error}") from error
    number = values.pop("format", None) if isinstance(values, dict) else None
    if number != _FORMAT:
        kind = "has no format that is known" if number is None else f"has format {number}"
        raise _UnreadableError(f"its {_RECORD} {kind}, and this version of Retrial reads format {_FORMAT}")
    settings = dict(_flat(values))
    for name, kind in {"seed": int, "train.n_env_steps_total": int, "env.family": str}.items():
        if not isinstance(settings.get(name), kind):
            raise _UnreadableError(f"its {_RECORD} has no {name}")
    return settings


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of a tree of options."""
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _levels(record: Mapping[str, Any]) -> dict[str, float]:
    """What a run's returns can be compared with; nothing where that is not recorded, or cannot be read."""
    levels = record.get("levels")
    if not isinstance(levels, dict):
        return {}
    return {name: level for name, level in levels.items() if type(level) is float and math.isfinite(level)}


# -- the metrics ---------------------------------------------------------------------------------------------


def _metrics(file: Path) -> tuple[tuple[Evaluation, ...], int, str, tuple[str, ...]]:
    """(evaluations, env steps of the last line, name of the list, remarks) of a file of metrics."""
    evaluations: list[Evaluation] = []
    env_steps, name, damaged, empty = 0, "", 0, 0
    for line in _whole_lines(file):
        try:
            values = json.loads(line)
            env_steps = int(values["env_steps"])
            name = name or next((one for one in _LISTS if f"eval/{one}/return_episode_1" in values), "")
            if not name:
                continue
            evaluation = _evaluation(values, name)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            damaged += 1
            continue
        if evaluation is None:
            continue
        if np.isfinite(evaluation.returns).all():
            evaluations.append(evaluation)
        else:
            empty += 1
    remarks: list[str] = []
    if damaged:
        remarks.append(f"{damaged} damaged lines of {_METRICS} are left out")
    if empty:
        remarks.append(f"{empty} evaluations are left out: trials were given up, so they have no mean")
    if not evaluations:
        remarks.append("it was not evaluated yet")
    return tuple(evaluations), env_steps, name, tuple(remarks)


def _whole_lines(file: Path) -> Iterator[bytes]:
    """The lines that hold an evaluation, and the last one, which says how far the run has come.

    A run that is training may have written half of its last line.
    """
    last = b""
    try:
        with file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                last = b""
                if b'"eval/' in line:
                    yield line
                else:
                    last = line
    except FileNotFoundError:  # it has not come so far
        return
    except OSError as error:
        raise _UnreadableError(f"its {_METRICS} cannot be read: {error.strerror}") from error
    if last:
        yield last


def _evaluation(values: Mapping[str, Any], name: str) -> Evaluation | None:
    """The evaluation on a list of tasks that a line of metrics holds, if it holds one."""
    returns: list[Any] = []
    while (key := f"eval/{name}/return_episode_{len(returns) + 1}") in values:
        returns.append(values[key])
    if not returns:
        return None
    by_task = values.get(f"eval/{name}/returns")
    if by_task is not None:
        by_task = np.array(by_task, float)  # null becomes NaN
        if by_task.ndim != 2 or by_task.shape[1] != len(returns):
            raise ValueError(f"eval/{name}/returns is no table of tasks and {len(returns)} episodes")
    return Evaluation(
        int(values["env_steps"]), float(values["time/seconds"]), np.array(returns, float), by_task
    )

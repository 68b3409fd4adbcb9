"""What a search came to: a table, a picture, and its best settings as an experiment to run again."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import yaml

from configs.compose import Composer
from configs.records import is_among
from configs.schema import GROUPS
from configs.search.command import HOW, SearchCommand
from configs.search.space import Choice, Range, Space, words_of
from configs.search.study import StudiedRun
from utils.disk.own_files import replace_file
from utils.report.searched import Axis, draw_searched

TABLE, FOR_PROGRAMS, PICTURE, BEST = "search.md", "search.csv", "search", "best"
# So many runs stand in what a command shows; the file has all.
_MOST_SHOWN = 10


def write_tables(command: SearchCommand, runs: Sequence[StudiedRun]) -> list[StudiedRun]:
    """Write what there is so far into the folder of the study; returns the runs, the best first."""
    ranked = sorted(runs, key=_rank)
    about = f"{_objective(command)}, the best runs first.\n\n"
    folder = command.folder
    replace_file(folder / TABLE, f"# Search\n\n{about}{_table(command.space, ranked)}\n".encode())
    replace_file(folder / FOR_PROGRAMS, _csv(command.space, ranked).encode())
    if ranked and ranked[0].objective is not None:
        experiment = folder / "experiment"
        experiment.mkdir(exist_ok=True)
        replace_file(experiment / f"{BEST}.yaml", _experiment(command, ranked[0]).encode())
    return ranked


def conclude(command: SearchCommand, runs: Sequence[StudiedRun]) -> str:
    """Write and draw what the search came to; returns what the command shows at its end."""
    folder, ranked = command.folder, write_tables(command, runs)
    counts = {state: sum(run.state == state for run in ranked) for state in _STATES}
    summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"{_objective(command)}; runs: {summary}", "", _table(command.space, ranked[:_MOST_SHOWN]), ""]
    lines.append(f"search       {folder / TABLE}, with its picture (PNG and SVG) and table (CSV) beside it")
    if ranked and ranked[0].objective is not None:
        _draw(command, ranked)
        lines.append(f"best         {folder / 'experiment' / BEST}.yaml; confirm it with other seeds:")
        lines.append(f"             python main.py -m --config-dir {folder} experiment={BEST} seed=1,2,3")
    lines += [f"failed       {folder / run.name}: {run.why}" for run in ranked if run.state == "failed"]
    return "\n".join(lines)


_STATES = ("complete", "pruned", "failed", "running", "waiting")


def _objective(command: SearchCommand) -> str:
    which = {"last_episode": "the last episode", "trial": "a whole trial"}[command.options.objective.name]
    seed = command.example.seed
    return f"Return of {which} on the test list, at the last evaluation, to be high (seed {seed})"


def _rank(run: StudiedRun) -> tuple[int, float]:
    shown = _shown_objective(run)
    return _STATES.index(run.state), math.inf if math.isnan(shown) else -shown


def _shown_objective(run: StudiedRun) -> float:
    """The objective, or of a run that has not come to its end that of its last evaluation."""
    if run.objective is not None:
        return run.objective
    return run.curve[max(run.curve)] if run.curve else math.nan


def _cells(space: Space, run: StudiedRun) -> list[Any]:
    return [run.name, run.state, _shown_objective(run), *(run.values.get(name, "") for name in space)]


def _table(space: Space, runs: Sequence[StudiedRun]) -> str:
    rows = [["run", "state", "return", *space], ["---"] * (3 + len(space))]
    rows += [
        [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in _cells(space, run)]
        for run in runs
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _csv(space: Space, runs: Sequence[StudiedRun]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["run", "state", "return", *space])
    table.writerows(_cells(space, run) for run in runs)
    return text.getvalue()


def _draw(command: SearchCommand, runs: Sequence[StudiedRun]) -> None:
    axes = [_axis(name, dimension, runs) for name, dimension in command.space.items()]
    returns = [_shown_objective(run) for run in runs]
    complete = [run.objective is not None for run in runs]
    draw_searched(command.folder / PICTURE, axes, returns, complete, label=command.options.objective.name)


def _axis(name: str, dimension: Range | Choice, runs: Sequence[StudiedRun]) -> Axis:
    """The values of one option as places on an axis."""
    values = [run.values.get(name) for run in runs]
    if isinstance(dimension, Range):
        places = [math.nan if value is None else float(value) for value in values]
        return Axis(name, places, log=dimension.log)
    names = dimension.values
    places = [names.index(value) if value in names else math.nan for value in values]
    return Axis(name, places, names=names)


def _experiment(command: SearchCommand, best: StudiedRun) -> str:
    """The best settings, and what was typed for all runs, as a file of the group `experiment`."""
    words = [*command.fixed, *words_of(best.values)]
    defaults: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    with Composer(command.config_dir) as composer:
        for override in composer.parse(words):
            name, value = override.key_or_group, override.value()
            if name == "seed" or is_among(name, HOW):
                continue
            if name in GROUPS:
                defaults.append({f"override /{name}": value})
            else:
                _put(settings, name, value)
    head = (
        "# @package _global_\n"
        f"# The best of {command.folder.name}: {_shown_objective(best):.4g}. {_objective(command)}.\n"
    )
    content: dict[str, Any] = ({"defaults": defaults} if defaults else {}) | settings
    return head + yaml.safe_dump(content, sort_keys=False)


def _put(settings: dict[str, Any], name: str, value: object) -> None:
    """Set a dotted name in nested settings."""
    *sections, last = name.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
    settings[last] = value

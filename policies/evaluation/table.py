"""What is shown of an evaluation: tables of returns by episode, with their spread over tasks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Reference
from utils.statistics import FEWEST, Interval, iqm_interval

# So many episodes have a column each; of longer trials some are shown, the first and the last among them.
MOST_COLUMNS = 8
# So many tasks are named as the worst of a list.
WORST = 3

# The end of the name of a list that was played with sampled actions.
STOCHASTIC = "_stochastic"
# What a return can be compared with.
ORACLE, RANDOM = POLICIES = ("oracle", "random")
# The return of an episode on a list, or on the tasks of one part in it.
_RETURN = re.compile(r"eval/([^/]+)/return(?:/(\w+))?_episode_\d+")
_SHOWN_AS = {ORACLE: "oracle (given the task)", RANDOM: "random actions"}


@dataclass(frozen=True)
class Levels:
    """What an oracle and random actions return, as far as it is known."""

    # Recorded with the family for its settings, as numbers for one episode of any test task.
    recorded: Reference | None = None
    # Or measured on the lists of this run: {list: {policy: [k] the mean return of every episode}}.
    measured: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    def of_list(self, name: str) -> dict[str, float]:
        """One number for each policy on a list, by what to call it in a picture."""
        if self.recorded is not None:
            found = {ORACLE: self.recorded.oracle, RANDOM: self.recorded.random}
            return {policy: score for policy, score in found.items() if score is not None}
        # An oracle needs no trial to adapt, so its episodes differ by chance alone.
        return {policy: fmean(returns) for policy, returns in self.curves(name, 1).items()}

    def curves(self, name: str, episodes: int) -> dict[str, Sequence[float]]:
        """[k] the returns of every episode of a list, by policy."""
        if self.recorded is not None:
            return {policy: [level] * episodes for policy, level in self.of_list(name).items()}
        return {f"{policy}, measured": of for policy, of in self.measured.get(name, {}).items()}


def curves_of(metrics: Mapping[str, Any]) -> dict[str, list[float]]:
    """{name: [return of episode 1, 2, ...]} of some metrics; empty where nothing was evaluated.

    The name is that of a list; of the tasks of one part in it, it is "list/part".
    """
    curves: dict[str, list[float]] = {}
    for key, value in metrics.items():
        if found := _RETURN.fullmatch(key):
            number = math.nan if value is None else value  # JSON has no NaN
            curves.setdefault("/".join(filter(None, found.groups())), []).append(number)
    return curves


def success_key(name: str, episode: int) -> str:
    """The metric that tells the successes of a curve; episodes are counted from 1."""
    listed, _, part = name.partition("/")
    return f"eval/{listed}/success{part and f'/{part}'}_episode_{episode}"


def task_returns(metrics: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """[tasks, k] the return of every task of a list; NaN where a trial was given up, empty where unknown."""
    returns = metrics.get(f"eval/{name}/returns", [])
    return np.array([[math.nan if value is None else value for value in row] for row in returns], float)


def evaluation_table(metrics: Mapping[str, Any], spec: EnvSpec, levels: Levels) -> str:
    """The return of every list by episode index, with its spread over tasks, and success where known.

    Below it stand the returns of an oracle and of random actions: those measured on the list, or those
    recorded for all.
    """
    curves = curves_of(metrics)
    episodes = max(len(values) for values in curves.values())
    columns = shown_episodes(episodes)

    def line(name: str, values: Sequence[float], number: str = "10.2f") -> str:
        cells = (f"{values[column]:{number}}" for column in columns if column < len(values))
        return f"  {name:<26}{''.join(cells)}"

    lines = [f"{'return by episode':<28}" + "".join(f"{column + 1:>10}" for column in columns)]
    for name, values in curves.items():
        lines.append(line(name, values))
        lines += [line(f"  {what}", spread) for what, spread in _spread(task_returns(metrics, name))]
        for policy, returns in levels.measured.get(name.removesuffix(STOCHASTIC), {}).items():
            lines.append(line(f"  {policy}, measured", returns))
    if levels.recorded is not None:
        recorded = levels.of_list("").items()
        lines += [line(_SHOWN_AS[policy], [score] * episodes) for policy, score in recorded]
    if spec.success is not None:
        lines.append("success by episode")
        for name, values in curves.items():
            keys = [success_key(name, episode) for episode in range(1, len(values) + 1)]
            lines.append(line(name, [metrics[key] for key in keys], "10.0%"))
    lines += filter(None, (_worst(name, task_returns(metrics, name)) for name in curves))
    return "\n".join(lines)


class RunRow(NamedTuple):
    """What the table of several runs shows of one: its name, its checkpoint, its numbers."""

    run: str
    checkpoint: str
    metrics: Mapping[str, Any]
    levels: Levels


def runs_table(rows: Sequence[RunRow]) -> str:
    """One line for each list of several runs, and of what they are compared with.

    It has the interquartile mean over tasks in the first and in the last episode, and the means by episode.
    Which tasks of a list belong to a part of it is not recorded, so a part has the means alone.
    """
    lines = [["run", "checkpoint", "list", "IQM of episode 1", "IQM of the last one", "mean by episode"]]
    for row in rows:
        for name, curve in curves_of(row.metrics).items():
            intervals = [str(_interval_of(column)) for column in task_returns(row.metrics, name).T] or [""]
            lines.append([row.run, row.checkpoint, name, intervals[0], intervals[-1], _means(curve)])
    for (name, policy), curve in _shared_levels(rows).items():
        lines.append([policy, "", name, "", "", _means(curve)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _means(curve: Sequence[float]) -> str:
    return " ".join(f"{curve[column]:.2f}" for column in shown_episodes(len(curve)))


def _shared_levels(rows: Sequence[RunRow]) -> dict[tuple[str, str], list[float]]:
    """{(list, policy): [k]} of policies that are known for all runs with that list: the mean over them.

    Measured on the tasks of each run they differ by its seed.
    """
    found: dict[tuple[str, str], list[Sequence[float]]] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        for name, curve in curves_of(row.metrics).items():
            counts[name] += 1
            for policy, level in row.levels.curves(name.removesuffix(STOCHASTIC), len(curve)).items():
                found.setdefault((name, policy), []).append(level)
    return {
        (name, policy): [fmean(values) for values in zip(*levels, strict=False)]
        for (name, policy), levels in found.items()
        if len(levels) == counts[name]
    }


def shown_episodes(episodes: int) -> list[int]:
    """The episodes that have a column, counted from 0: 1, 2, 5, 10, ... of many, and the last."""
    if episodes <= MOST_COLUMNS:
        return list(range(episodes))
    round_numbers = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
    shown = [number - 1 for number in round_numbers if number < episodes]
    return [*shown[: MOST_COLUMNS - 1], episodes - 1]


def _spread(returns: NDArray[np.float64]) -> list[tuple[str, list[float]]]:
    """The interquartile mean over tasks by episode, and the bounds of its 95 % interval."""
    # With one task the interquartile mean is the mean, and without all tasks it would be another quantity.
    if len(returns) < FEWEST or not np.isfinite(returns).all():
        return []
    intervals = list(map(iqm_interval, returns.T))
    bounds = [(one.low, one.high) for one in intervals if one.low is not None and one.high is not None]
    return [
        ("IQM over tasks", [one.mean for one in intervals]),
        ("95 % interval from", [low for low, _ in bounds]),
        ("to", [high for _, high in bounds]),
    ]


def _interval_of(returns: NDArray[np.float64]) -> Interval:
    """The interval over the tasks of one episode; NaN where a trial was given up."""
    if not np.isfinite(returns).all():
        return Interval(math.nan)
    return iqm_interval(returns)


def _worst(name: str, returns: NDArray[np.float64]) -> str:
    """Which tasks of a list went worst, counted from 0 as in tasks.json, by the return of their trial."""
    totals = returns.sum(-1)
    known = np.flatnonzero(np.isfinite(totals))
    if len(known) <= WORST:
        return ""
    worst = known[np.argsort(totals[known], kind="stable")][:WORST]
    parts = [f"{task} ({totals[task]:.2f})" for task in worst.tolist()]
    return f"worst tasks of {name}, by number (return of the trial): {', '.join(parts)}"

"""How far a run has come: its counters, and what else a checkpoint restores beside parameters and buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from envs.base import EnvSpec
from policies.collection.wave import WaveResult
from policies.curriculum.base import Curriculum

# The trials that the means of the display are taken over.
RECENT = 100
# So many groups of tasks have a metric each, beside the list of all.
FEW_GROUPS = 20
# So many groups of tasks are named on the display.
MOST_GROUPS = 4


class Stage(StrEnum):
    """What a run does next; it can stop before each stage, and a resume goes on there."""

    random_pool = "random_pool"
    collect = "collect"
    update = "update"
    evaluate = "evaluate"


@dataclass
class Counters:
    """Everything that decides what a run does next, apart from tensors and the buffer.

    All of it is plain data, which a checkpoint holds as JSON; floats survive that exactly.
    """

    stage: Stage = Stage.random_pool
    iteration: int = 0
    env_steps: int = 0
    # Trials collected with the policy, and numbers that several actors have left out between theirs.
    trials: int = 0
    left_out: int = 0
    warmup_trials: int = 0
    episodes: int = 0
    updates: int = 0
    # The fraction of an update that env steps have earned beyond `updates_due`; it is carried over.
    update_credit: float = 0.0
    # Updates that have been earned and not been made yet.
    updates_due: int = 0
    # Updates whose losses the next line of metrics averages.
    updates_in_record: int = 0
    next_evaluation: int = 0
    next_checkpoint: int = 0
    # The highest mean return of a trial on the test list so far.
    best_return: float | None = None
    # The metrics that the line of this iteration has so far.
    record: dict[str, Any] = field(default_factory=dict)
    # [up to 100][k] of the trials that *started* last.
    recent_returns: list[list[float]] = field(default_factory=list)
    # [up to 100] env steps of an episode, on average over each of these trials.
    recent_lengths: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage = Stage(self.stage)  # a checkpoint is JSON, which knows it as a string

    def count(self, result: WaveResult, *, warmup: bool) -> None:
        """Add a wave; `warmup` says that it is the random pool."""
        # Trials that were given up count too: their numbers are taken, and their env steps were made.
        trials, episodes = result.returns.shape
        self.env_steps += result.env_steps
        self.episodes += trials * episodes
        if warmup:
            self.warmup_trials += trials
        else:
            self.trials += trials
            self.left_out += result.left_out
        whole = ~result.dropped  # trials that were given up have no returns
        self.recent_returns = (self.recent_returns + result.returns[whole].tolist())[-RECENT:]
        self.recent_lengths = (self.recent_lengths + result.lengths[whole].mean(1).tolist())[-RECENT:]

    @property
    def next_number(self) -> int:
        """The number of the next trial of the policy."""
        return self.trials + self.left_out

    @property
    def mean_return_by_episode(self) -> list[float]:
        """[k] over the recent trials."""
        return np.mean(self.recent_returns, axis=0).tolist() if self.recent_returns else []


@dataclass
class RunProgress:
    """All that changes while a run goes on, apart from the algorithm and the buffer."""

    counters: Counters
    # Which task the next trial plays.
    curriculum: Curriculum
    # Which tasks the last wave has played, in a few words.
    played: str = ""
    # The losses of the updates since the last line of metrics, summed, on the device.
    loss_sums: dict[str, Tensor] = field(default_factory=dict)
    # The state of the agent that plays the present wave, where updates go on beside it
    # (policies/run/overlap.py); empty otherwise.
    acting_agent: dict[str, Any] = field(default_factory=dict)


def by_episode(prefix: str, values: np.ndarray[Any, Any]) -> dict[str, float]:
    """{prefix_episode_1: ..., prefix_episode_k: ...} of a [k] array."""
    return {f"{prefix}_episode_{index + 1}": float(value) for index, value in enumerate(values)}


def by_part(prefix: str, values: NDArray[Any], tasks: NDArray[np.float64], spec: EnvSpec) -> dict[str, float]:
    """The means by episode over the trials of each part: {prefix/easy_episode_1: ...} of [n, k] values.

    A part of which no task was played has none.
    """
    means: dict[str, float] = {}
    parts = spec.parts_of(tasks) if spec.parts else np.zeros(0)
    for number, name in enumerate(spec.parts):
        if (parts == number).any():
            means |= by_episode(f"{prefix}/{name}", values[parts == number].mean(0))
    return means


def tasks_played(curriculum: Curriculum, tasks: NDArray[np.float64]) -> dict[str, Any]:
    """How often a wave has played each group of tasks, as metrics, and what the curriculum does next."""
    names = curriculum.groups
    if not names:
        return {}
    counts = np.bincount(curriculum.group_of(tasks), minlength=len(names))
    line: dict[str, Any] = {"curriculum/trials": counts.tolist()}
    if len(names) <= FEW_GROUPS:
        line |= {
            f"curriculum/share/{name}": count / len(tasks)
            for name, count in zip(names, counts.tolist(), strict=True)
        }
    return line | {f"curriculum/{name}": value for name, value in curriculum.metrics().items()}


def played_text(line: Mapping[str, Any]) -> str:
    """What a line of metrics tells of the tasks of its wave, in a few words; maybe nothing."""
    share = "curriculum/share/"
    shares = {name.removeprefix(share): part for name, part in line.items() if name.startswith(share)}
    most = sorted(shares, key=lambda name: -shares[name])[:MOST_GROUPS]
    words = [f"{name} {shares[name]:.0%}" for name in most]
    if len(shares) > len(most):
        words.append("...")
    if (stage := line.get("curriculum/stage")) is not None:
        words.insert(0, f"stage {stage:g}:")
    if not shares and (count := line.get("curriculum/effective_tasks")) is not None:
        words.append(f"about {count:.0f} again")
    return " ".join(words)

"""Evaluation: the agent on fixed lists of tasks, by episode index, through the same wave loop as collection."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Split, TaskFamily
from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.wave import Actor, Plan, WaveResult, run_wave
from utils.seeding import Phase, Purpose, generator

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskLists:
    """The tasks that a run trains on and is judged on, fixed by its seed."""

    train: NDArray[np.float64] | None
    """None: a new task for every trial."""
    evaluation: dict[str, NDArray[np.float64]]
    """By name: `train`, and `held_out` or (where test tasks can be training tasks) `in_distribution`."""

    @classmethod
    def draw(cls, family: TaskFamily, seed: int) -> TaskLists:
        """The lists of a seed."""
        config, spec = family.config, family.spec
        train = None
        if config.num_train_tasks is not None:
            train = family.sample_tasks(generator(seed, Phase.TASKS, 0), config.num_train_tasks, "train")
        seen = (
            family.sample_tasks(generator(seed, Phase.TASKS, 1), config.num_eval_tasks, "train")
            if train is None
            else train[: config.num_eval_tasks]
        )
        unseen = family.sample_tasks(generator(seed, Phase.TASKS, 2), config.num_eval_tasks, "test")
        if (
            spec.split is Split.disjoint
            and (unseen[:, None] == (seen if train is None else train)[None]).all(-1).any()
        ):
            raise ValueError(
                f"{spec.name} says that its splits are disjoint, but a test task is also a training task."
            )
        return cls(train, {"train": seen, held_out_name(spec): unseen})

    def of_trial(self, family: TaskFamily, seed: int, phase: Phase, number: int) -> NDArray[np.float64]:
        """[task_dim] the task of a trial of training, by its number: one of the list, or a new one."""
        rng = generator(seed, phase, Purpose.TASK, number)
        if self.train is None:
            return family.sample_tasks(rng, 1, "train")[0]
        return self.train[rng.integers(len(self.train))]

    def save(self, path: Path) -> None:
        """Write them where a reader, or another program, finds them."""
        lists = {f"evaluation_{name}": tasks.tolist() for name, tasks in self.evaluation.items()}
        path.write_text(
            json.dumps({"training": None if self.train is None else self.train.tolist(), **lists}, indent=1)
            + "\n"
        )


def held_out_name(spec: EnvSpec) -> str:
    """What the test list may be called: held-out only where no test task can be a training task."""
    return "held_out" if spec.split is Split.disjoint else "in_distribution"


def curves_of(metrics: Mapping[str, Any]) -> dict[str, list[float]]:
    """{list name: [return of episode 1, 2, ...]} of some metrics; empty where nothing was evaluated."""
    found: dict[str, list[float]] = {}
    for key, value in metrics.items():
        parts = key.split("/")
        if parts[0] == "eval" and parts[-1].startswith("return_episode_"):
            found.setdefault("/".join(parts[1:-1]), []).append(
                math.nan if value is None else value
            )  # JSON has no NaN
    return found


def evaluation_table(metrics: Mapping[str, Any], spec: EnvSpec) -> str:
    """Return (and success) of every list by episode index, next to the family's oracle and random scores
    where known.
    """
    curves = curves_of(metrics)
    episodes = max(len(values) for values in curves.values())
    lines = [f"{'return by episode':<28}" + "".join(f"{index:>10}" for index in range(1, episodes + 1))]
    lines += [
        f"  {name:<26}" + "".join(f"{value:10.2f}" for value in values) for name, values in curves.items()
    ]
    if spec.reference is not None:
        references = {
            "oracle (told the task)": spec.reference.oracle,
            "random actions": spec.reference.random,
        }
        lines += [
            f"  {name:<26}" + f"{value:10.2f}" * episodes
            for name, value in references.items()
            if value is not None
        ]
    if spec.success is not None:
        lines.append("success by episode")
        rates = {
            name: [metrics[f"eval/{name}/success_episode_{index}"] for index in range(1, len(values) + 1)]
            for name, values in curves.items()
        }
        lines += [
            f"  {name:<26}" + "".join(f"{rate:10.0%}" for rate in values) for name, values in rates.items()
        ]
    return "\n".join(lines)


def evaluate_list(
    manager: ParallelEnvManager,
    actor: Actor,
    tasks: NDArray[np.float64],
    *,
    seed: int,
    trials_per_task: int = 1,
    tick: Callable[[WaveResult], bool] = lambda _: False,
) -> WaveResult:
    """Every task `trials_per_task` times. Keyed like training, in a phase of its own, so each evaluation of a
    run meets the same episodes.

    Where a trial was given up after a fault the returns are not a number, and so is every mean over them: a
    mean over the tasks that happened to survive would be another quantity under the same name.
    """
    plan = Plan(seed, Phase.EVALUATE, 0, np.repeat(tasks, trials_per_task, axis=0))
    result = run_wave(manager, actor, plan, tick=tick)
    if result.dropped.any():
        short = Counter(tuple(task) for task in plan.tasks[result.dropped].tolist())
        _log.warning("No mean over this list: trials were given up after faults, by task: %s.", dict(short))
    return result

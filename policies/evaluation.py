"""Evaluation: the agent on fixed lists of tasks, by episode index, through the wave loop of collection."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Split, TaskFamily
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.collection.actors import Actor, AgentActor
from policies.collection.wave import WavePlan, WaveResult, run_wave
from policies.run.config import Config
from policies.run.progress import Counters, by_episode
from utils.disk.own_files import replace_file
from utils.seeding import Phase, Purpose, generator

# The file of a run folder that holds what `evaluate=` found last.
EVALUATION = "evaluation.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskLists:
    """The tasks that a run trains and is evaluated on, fixed by its seed."""

    # None: a new task for every trial.
    train: NDArray[np.float64] | None
    # By name: `train`, and `held_out` or (where test tasks can be training tasks) `in_distribution`.
    evaluation: dict[str, NDArray[np.float64]]

    @classmethod
    def draw(cls, family: TaskFamily, seed: int) -> TaskLists:
        """The lists of a seed."""
        config, spec = family.config, family.spec
        train = None
        if config.num_train_tasks is not None:
            train = family.sample_tasks(generator(seed, Phase.TASKS, 0), config.num_train_tasks, "train")

        # Evaluation on training tasks: the first of the list, or draws of the training split.
        seen = train
        if seen is None:
            seen = family.sample_tasks(generator(seed, Phase.TASKS, 1), config.num_eval_tasks, "train")

        # Evaluation on test tasks; a family that calls its splits disjoint is taken at its word, and checked.
        unseen = family.sample_tasks(generator(seed, Phase.TASKS, 2), config.num_eval_tasks, "test")
        repeated = (unseen[:, None] == seen[None]).all(-1)
        if spec.split is Split.disjoint and repeated.any():
            raise ValueError(
                f"{spec.name} says that its splits are disjoint, but a test task is also a training task."
            )
        # A family with one task would be evaluated on it twice: one list is enough.
        seen = seen[: config.num_eval_tasks]
        if np.array_equal(seen, unseen):
            return cls(train, {held_out_name(spec): unseen})
        return cls(train, {"train": seen, held_out_name(spec): unseen})

    def of_trial(self, family: TaskFamily, seed: int, phase: Phase, number: int) -> NDArray[np.float64]:
        """[task_dim] the task of a trial of training, by its number: one of the list, or a new one."""
        rng = generator(seed, phase, Purpose.TASK, number)
        if self.train is None:
            return family.sample_tasks(rng, 1, "train")[0]
        return self.train[rng.integers(len(self.train))]

    def save(self, path: Path) -> None:
        """Write the lists as JSON, for readers and other programs."""
        lists: dict[str, Any] = {"training": None if self.train is None else self.train.tolist()}
        lists |= {f"evaluation_{name}": tasks.tolist() for name, tasks in self.evaluation.items()}
        replace_file(path, (json.dumps(lists, indent=1) + "\n").encode())


def held_out_name(spec: EnvSpec) -> str:
    """The name of the test list: held-out only where no test task can be a training task."""
    return "held_out" if spec.split is Split.disjoint else "in_distribution"


def evaluate_agent(
    manager: ParallelEnvManager,
    agent: Agent,
    tasks: TaskLists,
    config: Config,
    device: str,
    tick: Callable[[WaveResult], bool],
) -> dict[str, Any]:
    """Return (and success) by episode index on every list, as metrics `eval/<list>/...`.

    Beside the means over a list, `eval/<list>/returns` (and `successes`) hold every task's own, as
    [task][episode] in the order of the list; a task that is played several times has its mean.
    """
    metrics: dict[str, Any] = {}
    # The agent acts without noise, and once more with it where the config asks for that.
    for suffix in ("", "_stochastic")[: 1 + config.evaluation.stochastic]:
        actor = AgentActor(agent, device, deterministic=not suffix)
        for name, listed in tasks.evaluation.items():
            times = config.evaluation.trials_per_task
            result = evaluate_list(manager, actor, listed, seed=config.seed, trials_per_task=times, tick=tick)
            metrics |= _list_metrics(f"eval/{name}{suffix}", result, manager.spec, times)
    return metrics


def evaluate_list(
    manager: ParallelEnvManager,
    actor: Actor,
    tasks: NDArray[np.float64],
    *,
    seed: int,
    trials_per_task: int = 1,
    tick: Callable[[WaveResult], bool] = lambda _: False,
) -> WaveResult:
    """Play every task of a list `trials_per_task` times.

    Where a trial was given up after a fault its returns are NaN, and so is every mean over them: a mean over
    the tasks that happened to survive would be another quantity under the same name.
    """
    # Trials are keyed as in training, in a phase of their own: all evaluations of a run meet equal episodes.
    repeated = np.repeat(tasks, trials_per_task, axis=0)
    result = run_wave(manager, actor, WavePlan.of_tasks(seed, Phase.EVALUATE, 0, repeated), tick=tick)
    if result.dropped.any():
        counts = Counter(tuple(task) for task in repeated[result.dropped].tolist())
        _log.warning("No mean over this list: trials were given up after faults, by task: %s.", dict(counts))
    return result


def _list_metrics(key: str, result: WaveResult, spec: EnvSpec, times: int) -> dict[str, Any]:
    """The means over one list by episode index, `<key>/return_episode_1` and so on, and those of its tasks.

    Successes are there where the family knows them.
    """
    played = {"return": ("returns", result.returns)}
    if spec.success:
        # A trial that was given up has neither succeeded nor failed.
        successes = np.where(result.dropped[:, None], np.nan, result.successes)
        played["success"] = ("successes", successes)

    metrics: dict[str, Any] = {}
    for one, (all_of_them, values) in played.items():
        metrics |= by_episode(f"{key}/{one}", values.mean(0))
        # The trials of a task stand beside each other.
        by_task = values.reshape(-1, times, values.shape[1]).mean(1)
        metrics[f"{key}/{all_of_them}"] = by_task.tolist()
    return metrics


def write_evaluation(run_dir: Path, counters: Counters, metrics: Mapping[str, Any]) -> None:
    """Write an evaluation into the run folder; where that fails a warning says so."""
    facts = {"env_steps": counters.env_steps, "updates": counters.updates, **metrics}
    # One metric a line, however many tasks it lists.
    lines = [f" {json.dumps(name)}: {json.dumps(_json_of(value))}" for name, value in facts.items()]
    try:
        replace_file(run_dir / EVALUATION, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    except OSError as error:
        _log.warning("The evaluation is shown here only: %s.", error)


def _json_of(value: Any) -> Any:
    """A metric with null for what is no number: JSON has no NaN."""
    if isinstance(value, list):
        return [_json_of(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def curves_of(metrics: Mapping[str, Any]) -> dict[str, list[float]]:
    """{list name: [return of episode 1, 2, ...]} of some metrics; empty where nothing was evaluated."""
    curves: dict[str, list[float]] = {}
    for key, value in metrics.items():
        parts = key.split("/")
        if parts[0] == "eval" and parts[-1].startswith("return_episode_"):
            number = math.nan if value is None else value  # JSON has no NaN
            curves.setdefault("/".join(parts[1:-1]), []).append(number)
    return curves


def evaluation_table(metrics: Mapping[str, Any], spec: EnvSpec) -> str:
    """Return (and success) of every list by episode index, beside oracle and random scores where known."""
    curves = curves_of(metrics)
    episodes = max(len(values) for values in curves.values())

    def line(name: str, values: Iterable[float], number: str = "10.2f") -> str:
        return f"  {name:<26}" + "".join(f"{value:{number}}" for value in values)

    lines = [f"{'return by episode':<28}" + "".join(f"{index:>10}" for index in range(1, episodes + 1))]
    lines += [line(name, values) for name, values in curves.items()]
    if spec.reference is not None:
        scores = {"oracle (given the task)": spec.reference.oracle, "random actions": spec.reference.random}
        lines += [line(name, [score] * episodes) for name, score in scores.items() if score is not None]
    if spec.success is not None:
        lines.append("success by episode")
        for name, values in curves.items():
            keys = [f"eval/{name}/success_episode_{index}" for index in range(1, len(values) + 1)]
            lines.append(line(name, [metrics[key] for key in keys], "10.0%"))
    return "\n".join(lines)

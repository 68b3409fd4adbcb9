"""Playing lists of tasks: what an agent returns in each episode, through the wave loop of collection."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.collection.actors import Actor, AgentActor
from policies.collection.wave import WavePlan, WaveResult, run_wave
from policies.evaluation.lists import TaskLists
from policies.evaluation.table import STOCHASTIC
from policies.run.config import Config
from policies.run.progress import by_episode, by_part
from utils.seeding import Phase

_log = logging.getLogger(__name__)

# How often a trial that was given up is played again, where an environment is not deterministic.
REPLAYS = 3


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
    for suffix in ("", STOCHASTIC)[: 1 + config.evaluation.stochastic]:
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

    A trial that was given up because its environment does not repeat itself is played again, up to three
    times. Where one is given up all the same its returns are NaN, and so is every mean over them: a mean over
    the tasks that happened to survive would be another quantity under the same name.
    """
    # Trials are keyed as in training, in a phase of their own: all evaluations of a run meet equal episodes.
    repeated = np.repeat(tasks, trials_per_task, axis=0)
    result = run_wave(manager, actor, WavePlan.of_tasks(seed, Phase.EVALUATE, 0, repeated), tick=tick)
    for _ in range(0 if manager.spec.deterministic else REPLAYS):
        for number in np.flatnonzero(result.dropped).tolist():
            # Its number keys its randomness, so the same trial is meant, whatever the service makes of it.
            plan = WavePlan.of_tasks(seed, Phase.EVALUATE, number, repeated[number : number + 1])
            result.put(number, run_wave(manager, actor, plan, tick=tick))
    if result.dropped.any():
        counts = Counter(tuple(task) for task in repeated[result.dropped].tolist())
        _log.warning("No mean over this list: trials were given up after faults, by task: %s.", dict(counts))
    return result


def _list_metrics(key: str, result: WaveResult, spec: EnvSpec, times: int) -> dict[str, Any]:
    """The means over one list by episode index, `<key>/return_episode_1` and so on, and those of its tasks.

    Successes are there where the family knows them, and means over each part, such as
    `<key>/return/easy_episode_1`, where it has parts.
    """
    played = {"return": ("returns", result.returns)}
    if spec.success:
        # A trial that was given up has neither succeeded nor failed.
        successes = np.where(result.dropped[:, None], np.nan, result.successes)
        played["success"] = ("successes", successes)

    metrics: dict[str, Any] = {}
    for one, (all_of_them, values) in played.items():
        metrics |= by_episode(f"{key}/{one}", values.mean(0))
        metrics |= by_part(f"{key}/{one}", values, result.tasks, spec)
        # The trials of a task stand beside each other.
        by_task = values.reshape(-1, times, values.shape[1]).mean(1)
        metrics[f"{key}/{all_of_them}"] = by_task.tolist()
    return metrics

"""Agents of simple_push beside scripted adversaries: random actions, the script that walks, and trained runs.

    python -m benchmarks.several_agents.simple_push                 random actions and the script
    python -m benchmarks.several_agents.simple_push RUN ...     these runs too, without noise
    python -m benchmarks.several_agents.simple_push RUN ... --output FILE.json

All play the same 400 trials of two episodes, of `experiment=simple_push`; each adversary plays half of them.
The packages are those of requirements-partners.txt.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.machine import facts, write
from configs.compose import load
from envs.base import Rows, TaskFamily
from envs.meta.make_env import make_family
from envs.meta.third_party.simple_push_scripts import walker
from envs.parallel_env_manager import ParallelEnvManager
from policies.play import load_agent

TRIALS = 400
Act = Callable[[Rows], NDArray[np.int64]]


def drifting(family: TaskFamily) -> Act:
    """Each of the five actions as often."""
    rng = np.random.default_rng(0)
    return lambda rows: rng.integers(5, size=TRIALS)


def walking(family: TaskFamily) -> Act:
    """The script that walks straight to its goal; what is added to its observation stands behind."""
    return lambda rows: np.array([walker(np.asarray(obs), None, np.random.default_rng()) for obs in rows.obs])


def trained(path: Path) -> Callable[[TaskFamily], Act]:
    """The agent of a run, which keeps its memory for the trial."""

    def policy(family: TaskFamily) -> Act:
        player = load_agent(path, TRIALS)

        def act(rows: Rows) -> NDArray[np.int64]:
            actions = player.act(rows.obs, rows.reward, rows.ended)
            return np.where(rows.ended, 0, actions).astype(np.int64)

        return act

    return policy


def pushed_returns(family: TaskFamily, policy: Callable[[TaskFamily], Act]) -> tuple[Any, Any]:
    """[trials, k] returns by episode, and [trials] the adversary of each trial."""
    tasks, act = family.sample_tasks(np.random.default_rng(0), TRIALS, "test"), policy(family)
    episodes = family.config.max_rollouts_per_task
    returns, episode = np.zeros((TRIALS, episodes)), np.zeros(TRIALS, np.int64)
    with ParallelEnvManager(family, TRIALS, episodes_per_trial=episodes, seed=0) as manager:
        rows = manager.reset(tasks, seeds=range(TRIALS))
        while manager.running.any():
            rows = manager.step(act(rows))
            # A start row has no reward, and belongs to the next episode.
            returns[np.arange(TRIALS), np.minimum(episode, episodes - 1)] += rows.reward * rows.valid
            episode += rows.ended & rows.valid
    return returns, tasks[:, 0].astype(np.int64)


def pushed_scores(family: TaskFamily, policy: Callable[[TaskFamily], Act]) -> dict[str, Any]:
    """Mean and standard error of an episode's return; the means by episode and by adversary."""
    returns, adversary = pushed_returns(family, policy)
    # A trial is one draw: its episodes have the same adversary.
    means = returns.mean(axis=1)
    return {
        "mean": float(means.mean()),
        "error": float(means.std(ddof=1) / math.sqrt(len(means))),
        "by_episode": returns.mean(axis=0).tolist(),
        "by_adversary": [float(means[adversary == number].mean()) for number in np.unique(adversary)],
    }


def main() -> None:
    """Play, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    family = make_family(load(["experiment=simple_push"]).env)
    policies = {"random actions": drifting, "the script": walking}
    policies |= {path.name: trained(path) for path in options.runs}
    found = {name: pushed_scores(family, policy) for name, policy in policies.items()}
    for name, score in found.items():
        shown = [" ".join(f"{one:7.2f}" for one in score[by]) for by in ("by_episode", "by_adversary")]
        print(f"{name:<16}{score['mean']:8.2f} +- {score['error']:.2f}   by episode {shown[0]}", end="")
        print(f"   by adversary {shown[1]}")
    if options.output is not None:
        write(options.output, {"machine": facts(), "trials": TRIALS, "scores": found})


if __name__ == "__main__":
    main()

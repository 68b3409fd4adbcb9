"""A learner of Stable-Baselines3 on a Gymnasium environment, which writes a curve as `main.py` does.

    python -m benchmarks.parts.learning.sb3_runs --peer sb3-ppo --folder DIR --env-id CartPole-v1

The learner has the defaults of its own library. It is no dependency of Retrial: pip install stable-baselines3
sb3-contrib, in an environment of their own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from envs.meta.third_party.registered_env import registered_env

# Module, class and policy of each peer.
PEERS = {
    "sb3-ppo": ("stable_baselines3", "PPO", "MlpPolicy"),
    "sb3-sac": ("stable_baselines3", "SAC", "MlpPolicy"),
    "sb3-recurrent-ppo": ("sb3_contrib", "RecurrentPPO", "MlpLstmPolicy"),
}


@dataclass(frozen=True)
class Task:
    """An environment, how long to learn in it, and how often to evaluate."""

    env_id: str
    env_steps: int
    every: int
    wrappers: tuple[str, ...] = ()
    # As many as `main.py` has test tasks by default.
    episodes: int = 20

    @property
    def words(self) -> tuple[str, ...]:
        """The same for `main.py`."""
        return (
            "env=Gymnasium",
            f"env.id={self.env_id}",
            f"env.wrappers={json.dumps(self.wrappers)}",
            f"env.num_eval_tasks={self.episodes}",
            f"train.n_env_steps_total={self.env_steps}",
            f"evaluation.every={self.every}",
        )

    def command(self, peer: str, seed: int, folder: Path) -> list[str]:
        """The command that plays a peer."""
        facts = {"peer": peer, "seed": seed, "folder": folder, "env-id": self.env_id}
        facts |= {"env-steps": self.env_steps, "every": self.every, "episodes": self.episodes}
        options = [word for name, value in facts.items() for word in (f"--{name}", str(value))]
        return [sys.executable, "-m", __name__, *options, "--wrappers", *self.wrappers]


def mean_return(model: Any, env: Any, episodes: int) -> float:
    """Of so many episodes without noise."""
    returns: list[float] = []
    for episode in range(episodes):
        (obs, _), state, start, total, over = env.reset(seed=episode), None, True, 0.0, False
        while not over:
            action, state = model.predict(obs, state, np.array([start]), deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, start, over = total + float(reward), False, terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def peer_class(peer: str) -> tuple[Any, str]:
    """The class of a peer, and the name of its policy."""
    module, name, policy = PEERS[peer]
    return getattr(importlib.import_module(module), name), policy


def learn(
    model: Any,
    judge: Callable[[], dict[str, float]],
    path: Path,
    *,
    env_steps: int,
    every: int,
    taken: Callable[[], int],
) -> None:
    """Learn for so many time steps, with a line of metrics after every `every` env steps and at the end.

    `taken` counts env steps, and `judge` returns what an evaluation has found.
    """
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")
    began, evaluating, evaluated = perf_counter(), 0.0, 0

    def evaluate() -> None:
        nonlocal evaluating, evaluated
        before, evaluated = perf_counter(), taken()
        found = judge()
        evaluating += perf_counter() - before
        seconds = perf_counter() - began
        line = {
            "env_steps": evaluated,
            "updates": model._n_updates,
            "time/seconds": seconds,
            "time/evaluate": evaluating / seconds,
            **found,
        }
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def each_step(*_: object) -> bool:
        if taken() // every > evaluated // every:
            evaluate()
        return True

    model.learn(env_steps, callback=callbacks.ConvertCallback(each_step))
    if taken() > evaluated:
        evaluate()


def played_by_peer(peer: str, task: Task, seed: int, path: Path) -> None:
    """Learn, and write a line of metrics at each evaluation."""
    kind, policy = peer_class(peer)
    make = registered_env(task.env_id, 0, (), task.wrappers)
    model, judged = kind(policy, make(), seed=seed, device="cpu"), make()

    def judge() -> dict[str, float]:
        return {"eval/in_distribution/return_episode_1": mean_return(model, judged, task.episodes)}

    learn(model, judge, path, env_steps=task.env_steps, every=task.every, taken=lambda: model.num_timesteps)


def main() -> None:
    """Play one peer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--env-id", required=True)
    parser.add_argument("--wrappers", nargs="*", default=[], metavar="MODULE:NAME")
    for name, default in (("seed", 0), ("env-steps", 50_000), ("every", 5_000), ("episodes", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    task = Task(asked.env_id, asked.env_steps, asked.every, tuple(asked.wrappers), asked.episodes)
    asked.folder.mkdir(parents=True, exist_ok=True)
    played_by_peer(asked.peer, task, asked.seed, asked.folder / "metrics.jsonl")


if __name__ == "__main__":
    main()

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


def played_by_peer(peer: str, task: Task, seed: int, path: Path) -> None:
    """Learn, and write a line of metrics at each evaluation."""
    module, name, policy = PEERS[peer]
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")
    make = registered_env(task.env_id, 0, (), task.wrappers)
    began, evaluated = perf_counter(), 0.0
    model = getattr(importlib.import_module(module), name)(policy, make(), seed=seed, device="cpu")
    judge = make()

    def evaluate() -> None:
        nonlocal evaluated
        before = perf_counter()
        found = mean_return(model, judge, task.episodes)
        evaluated += perf_counter() - before
        seconds = perf_counter() - began
        line = {
            "env_steps": model.num_timesteps,
            "updates": model._n_updates,
            "time/seconds": seconds,
            "time/evaluate": evaluated / seconds,
            "eval/in_distribution/return_episode_1": found,
        }
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def each_step(*_: object) -> bool:
        if model.num_timesteps % task.every == 0:
            evaluate()
        return True

    model.learn(task.env_steps, callback=callbacks.ConvertCallback(each_step))
    if model.num_timesteps % task.every:
        evaluate()


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

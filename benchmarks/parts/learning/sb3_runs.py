"""A learner of Stable-Baselines3 on the environment of a recipe, which writes a curve as `main.py` does.

    python -m benchmarks.parts.learning.sb3_runs --peer sb3-ppo --folder DIR --seed 0 WORD ...

The words are those of a recipe: its environment with the wrappers, its env steps, how often it is evaluated
and on how many episodes. The learner has the defaults of its own library. It is no dependency of Retrial:
pip install stable-baselines3 sb3-contrib, in an environment of their own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from configs.compose import load
from envs.meta.third_party.gymnasium_family import GymnasiumConfig
from envs.meta.third_party.registered_env import registered_env
from policies.run.config import Config

# Module, class and policy of each peer.
PEERS = {
    "sb3-ppo": ("stable_baselines3", "PPO", "MlpPolicy"),
    "sb3-sac": ("stable_baselines3", "SAC", "MlpPolicy"),
    "sb3-recurrent-ppo": ("sb3_contrib", "RecurrentPPO", "MlpLstmPolicy"),
}


def peer_command(peer: str, words: Sequence[str], seed: int, folder: Path) -> list[str]:
    """The command that plays a peer on the environment of these words."""
    module = ["-m", "benchmarks.parts.learning.sb3_runs", "--peer", peer, "--seed", str(seed)]
    return [sys.executable, *module, "--folder", str(folder), *words]


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


def played_by_peer(peer: str, config: Config, make: Callable[[], Any], path: Path) -> None:
    """Learn, and write a line of metrics at each evaluation."""
    module, name, policy = PEERS[peer]
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")
    began, every, evaluated = perf_counter(), config.evaluation.every, 0.0
    model = getattr(importlib.import_module(module), name)(policy, make(), seed=config.seed, device="cpu")
    judge = make()

    def evaluate() -> None:
        nonlocal evaluated
        before = perf_counter()
        found = mean_return(model, judge, config.env.num_eval_tasks)
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
        if model.num_timesteps % every == 0:
            evaluate()
        return True

    total = config.train.n_env_steps_total
    model.learn(total, callback=callbacks.ConvertCallback(each_step))
    if model.num_timesteps % every:
        evaluate()


def main() -> None:
    """Play one peer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    config = load([*asked.words, f"seed={asked.seed}"])
    env = config.env
    if not isinstance(env, GymnasiumConfig):
        parser.error(f"peers play Gymnasium's environments, not env={env.family}.")
    make = registered_env(env.id, env.max_episode_steps, env.arguments, env.wrappers)
    asked.folder.mkdir(parents=True, exist_ok=True)
    played_by_peer(asked.peer, config, make, asked.folder / "metrics.jsonl")


if __name__ == "__main__":
    main()

"""PPO of Stable-Baselines3 on the grid world for PettingZoo, flattened, with one environment and with eight.

    python -m benchmarks.several_agents.sb3_flat                     250,000 steps of each
    python -m benchmarks.several_agents.sb3_flat --steps 50000 --output FILE.json

One environment is stepped in this process (DummyVecEnv), eight in a process each (SubprocVecEnv), as usual.
PPO has SB3's own settings but for 2,048 steps of all environments together. The packages are those of
requirements-partners.txt.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.parts.machine import facts, write
from benchmarks.several_agents.one_vectoriser import cpu_seconds
from envs.interop.pettingzoo import FlattenMultiAgentWrapper

ROLLOUT = 2_048


def flat_grid() -> Any:
    """Two agents that search, as one; an episode has 12 cycles."""
    grid_world = importlib.import_module("envs.interop.grid_world")
    monitor = importlib.import_module("stable_baselines3.common.monitor").Monitor
    return monitor(FlattenMultiAgentWrapper(grid_world.parallel_env(max_cycles=12)))


def learned(count: int, steps: int) -> dict[str, float]:
    """Seconds of learning so many steps, by the clock and of CPU, and the return of its last 100 episodes."""
    sb3 = importlib.import_module("stable_baselines3")
    vec_envs = importlib.import_module("stable_baselines3.common.vec_env")
    kind = vec_envs.DummyVecEnv if count == 1 else vec_envs.SubprocVecEnv
    envs = kind([flat_grid] * count)
    model = sb3.PPO("MlpPolicy", envs, n_steps=ROLLOUT // count, seed=0, device="cpu")
    start, cpu = perf_counter(), cpu_seconds()
    model.learn(steps)
    seconds, cpu = perf_counter() - start, cpu_seconds() - cpu
    returns = [one["r"] for one in model.ep_info_buffer]
    envs.close()
    row = {"seconds": seconds, "cpu_seconds": cpu, "steps_per_s": steps / seconds}
    return row | {"return": float(np.mean(returns))}


def main() -> None:
    """Learn, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=250_000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine, found = facts(), {}
    for count in (1, 8):
        row = found[f"{count} environments"] = learned(count, options.steps)
        print(f"{count} environments: {row['seconds']:.0f} s, {row['cpu_seconds']:.0f} of CPU", end="")
        print(f", {row['steps_per_s']:,.0f} steps/s, return of an episode {row['return']:.2f}", flush=True)
    if options.output is not None:
        write(options.output, {"machine": machine, "steps": options.steps, "rows": found})


if __name__ == "__main__":
    main()

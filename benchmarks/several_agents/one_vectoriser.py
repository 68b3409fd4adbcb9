"""One row of benchmarks/several_agents/vectorisers.py, in a process of its own; it prints what it measured.

AgileRL's row is run by the interpreter of AgileRL's own environment, so this file imports nothing of the
project but in the rows that are ours.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil

ENVIRONMENTS, MAX_CYCLES, CHUNK = 8, 25, 20
# (how it is stepped by actions [A, N], how it is closed)
Stepper = tuple[Callable[[Any], None], Callable[[], None]]


def new_env() -> Any:
    """simple_spread of mpe2, three agents."""
    return importlib.import_module("mpe2.simple_spread_v3").parallel_env(max_cycles=MAX_CYCLES)


def plain_loop() -> Stepper:
    """A loop over the environments."""
    envs = [new_env() for _ in range(ENVIRONMENTS)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)

    def step(actions: Any) -> None:
        for number, env in enumerate(envs):
            env.step({name: int(actions[place, number]) for place, name in enumerate(env.agents)})
            if not env.agents:
                env.reset()

    return step, lambda: None


def retrial(workers: int) -> Stepper:
    """Our face with AgileRL's names."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    vector = importlib.import_module("envs.interop.pettingzoo").AsyncPettingZooVecEnv
    return _by_agent(vector([new_env] * ENVIRONMENTS, num_workers=workers))


def agilerl() -> Stepper:
    """AgileRL's own, a process for each environment."""
    library = importlib.import_module("agilerl.vector.pz_async_vec_env")
    return _by_agent(library.AsyncPettingZooVecEnv([new_env] * ENVIRONMENTS))


def _by_agent(env: Any) -> Stepper:
    env.reset(seed=0)
    return lambda actions: env.step(dict(zip(env.agents, actions, strict=True))), env.close


def supersuit(processes: int) -> Stepper:
    """SuperSuit's concatenation, whose columns are agents."""
    library = importlib.import_module("supersuit")
    single = library.pettingzoo_env_to_vec_env_v1(new_env())
    env = library.concat_vec_envs_v1(single, ENVIRONMENTS, num_cpus=processes, base_class="gymnasium")
    env.reset(seed=0)
    return lambda actions: env.step(np.ascontiguousarray(actions.T).ravel()), env.close


ROWS: dict[str, Callable[[], Stepper]] = {
    "plain loop": plain_loop,
    "Retrial, in this process": lambda: retrial(1),
    "Retrial, 2 workers": lambda: retrial(2),
    "AgileRL, 8 processes": agilerl,
    "SuperSuit, in this process": lambda: supersuit(0),
    "SuperSuit, 2 processes": lambda: supersuit(2),
}


def cpu_seconds() -> float:
    """What this process and its children have used so far."""
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def measured(name: str, seconds: float) -> dict[str, float]:
    """Env steps (cycles) per second, and the CPU microseconds of each."""
    rng = np.random.default_rng(0)
    step, close = ROWS[name]()

    def chunk() -> None:
        for _ in range(CHUNK):
            step(rng.integers(5, size=(3, ENVIRONMENTS)))

    chunk()
    steps, cpu, start = 0, cpu_seconds(), perf_counter()
    while perf_counter() - start < seconds:
        chunk()
        steps += CHUNK * ENVIRONMENTS
    wall, cpu = perf_counter() - start, cpu_seconds() - cpu
    close()
    return {"env_steps_per_s": steps / wall, "cpu_us": 1e6 * cpu / steps}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], float(sys.argv[2]))))

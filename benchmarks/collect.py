"""Collecting AntDir in parallel: env-steps per second of every way to step, with the same GRU-128 policy acting in every row.

    python -m benchmarks.collect                 the table, and benchmarks/results/collect.json
    python -m benchmarks.collect --seconds 5 --repeats 3 --slots 12 --workers 6

limit = cores / (CPU seconds of mj_step per env-step, replayed from this run's states with all cores busy
                 + CPU seconds of inference per env-step)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy.typing import NDArray

from buffers.replay import ENDED, Replay
from envs.backends.base import BackendConfig
from envs.meta.ant_dir import FRAME_SKIP, load_model
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.agents.base import AgentConfig, AgentSpec, Arch, PolicyRows
from policies.algorithms import ALGORITHMS
from policies.memory import MEMORIES
from policies.rollout import AgentActor, Plan, run_wave
from utils.machine import available_cores, describe
from utils.seeding import Phase

RESULTS = Path(__file__).parent / "results" / "collect.json"
EPISODES, HORIZON = 2, 200
TRIALS_PER_SLOT = 25


@dataclass
class Row:
    """One way to step, and what it reached in each repeat."""

    name: str
    run: Callable[[float], float]
    """Run for so many seconds; env-steps per second."""
    close: Callable[[], None]


def make_agent(manager: ParallelEnvManager) -> Agent:
    """The policy of every row: GRU-128, the published embeddings and heads."""
    algorithm = ALGORITHMS["SAC"]
    memory = MEMORIES["GRU"]
    config = AgentConfig(arch=Arch.Memory, hidden=[128, 128, 128])
    spec = AgentSpec(manager.single_observation_space, manager.single_action_space, config, memory, memory.Config(hidden_size=128))
    torch.manual_seed(0)
    return algorithm.make_agent(algorithm.Config(), spec)


def retrial_row(name: str, manager: ParallelEnvManager, agent: Agent) -> Row:
    """Trials through the product's own wave loop, into its replay."""
    replay = Replay(
        obs_space=manager.single_observation_space,
        action_space=manager.single_action_space,
        capacity_trials=4000,
        rows_per_trial=manager.rows_per_trial,
    )
    waves = [0]

    def run(seconds: float) -> float:
        steps, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            # Long waves: in the last rounds of a wave fewer and fewer slots have a trial left.
            tasks = manager.sample_tasks(TRIALS_PER_SLOT * manager.num_envs, rng=np.random.default_rng(waves[0]))
            steps += run_wave(manager, AgentActor(agent, device="cpu"), Plan(0, Phase.TRAIN, waves[0] * len(tasks), tasks), sink=replay).env_steps
            waves[0] += 1
        return steps / (perf_counter() - start)

    return Row(name, run, manager.close)


class Loop:
    """The same agent before environments that know nothing of trials: it carries memory, previous action and reward itself."""

    def __init__(self, agent: Agent, num_envs: int) -> None:
        self._agent, self._state = agent, agent.initial_state(num_envs)
        self._obs = np.zeros((num_envs, 28), np.float32)
        self._reward = np.zeros(num_envs, np.float32)
        self._action = np.zeros((num_envs, 8), np.float32)
        self._start = np.ones(num_envs, np.bool_)
        self._rng = np.random.default_rng(0)

    def act(self, obs: NDArray[Any], reward: NDArray[Any], start: NDArray[Any]) -> NDArray[np.float32]:
        """Actions for a batch of Gymnasium observations."""
        self._obs[:, :27] = obs
        self._reward[:] = reward
        self._start[:] = start
        rows = PolicyRows(*(torch.from_numpy(part) for part in (self._obs, self._reward, self._action, self._start)))
        noise = torch.from_numpy(self._rng.standard_normal(self._action.shape, np.float32))
        with torch.inference_mode():
            action, _, self._state = self._agent.act(rows, self._state, noise)
        self._action = action.numpy()
        return self._action


def gymnasium_ant() -> gymnasium.Env[Any, Any]:
    """Gymnasium's Ant with AntDir's 27 numbers and horizon."""
    return gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False, max_episode_steps=HORIZON)


def vector_row(name: str, envs: gymnasium.vector.VectorEnv[Any, Any, Any], agent: Agent) -> Row:
    """A Gymnasium vector environment."""
    loop = Loop(agent, envs.num_envs)
    obs, _ = envs.reset(seed=0)
    now: list[Any] = [obs, np.zeros(envs.num_envs), np.ones(envs.num_envs, np.bool_)]

    def run(seconds: float) -> float:
        steps, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            for _ in range(50):
                fresh = now[2]
                obs, reward, terminated, truncated, _ = envs.step(loop.act(*now))
                now[:] = obs, reward, terminated | truncated
                steps += envs.num_envs - int(np.sum(fresh))  # the step after an end is a reset and ignores its action
        return steps / (perf_counter() - start)

    return Row(name, run, envs.close)


def single_row(agent: Agent) -> Row:
    """Act with a batch of one, step one environment, and again."""
    env, loop = gymnasium_ant(), Loop(agent, 1)

    def run(seconds: float) -> float:
        steps, start = 0, perf_counter()
        obs, _ = env.reset(seed=0)
        reward, fresh = 0.0, True
        while perf_counter() - start < seconds:
            obs, reward, terminated, truncated, _ = env.step(loop.act(obs[None], np.float32(reward), np.bool_(fresh))[0])  # pyright: ignore[reportArgumentType]
            fresh = terminated or truncated
            steps += 1
            if fresh:
                obs, _ = env.reset()
        return steps / (perf_counter() - start)

    return Row("batch-1 act-and-step loop", run, env.close)


# -- the limit -------------------------------------------------------------------------------------------------------------------------------


def visited_states(manager: ParallelEnvManager, agent: Agent, count: int) -> NDArray[np.float64]:
    """[count, 29 + 8] positions, velocities and the actions taken there, from a run of the policy (all but x and y, which move nothing)."""
    replay = Replay(
        obs_space=manager.single_observation_space,
        action_space=manager.single_action_space,
        capacity_trials=24,
        rows_per_trial=manager.rows_per_trial,
    )
    tasks = manager.sample_tasks(24, rng=np.random.default_rng(0))
    run_wave(manager, AgentActor(agent, device="cpu"), Plan(0, Phase.TRAIN, 0, tasks), sink=replay)
    stored = replay.export(0, 24)
    alive = stored["flags"] & ENDED == 0
    together = np.concatenate([stored["obs"][alive][:, :27], stored["action"][alive]], axis=1)
    return together[np.random.default_rng(0).permutation(len(together))[:count]].astype(np.float64)


def _physics(core: int | None, states: NDArray[np.float64], seconds: float, ready: Any, answers: Any) -> None:
    """One busy core: the CPU seconds that `mj_step` takes on these states."""
    from envs.meta.ant_dir import mujoco_module

    mujoco = mujoco_module()
    if core is not None:
        os.sched_setaffinity(0, {core})
    model = load_model()
    data = mujoco.MjData(model)
    ready.wait()
    spent, steps, start = 0.0, 0, perf_counter()
    while perf_counter() - start < seconds:
        row = states[steps % len(states)]
        mujoco.mj_resetData(model, data)
        data.qpos[2:], data.qvel[:], data.ctrl[:] = row[:13], row[13:27], row[27:]
        mujoco.mj_step(model, data, FRAME_SKIP)  # settles the warm start, as a step before this one would have
        before = perf_counter()
        mujoco.mj_step(model, data, FRAME_SKIP)
        spent += perf_counter() - before
        steps += 1
    answers.put(spent / steps)


def physics_seconds(states: NDArray[np.float64], seconds: float) -> float:
    """CPU seconds of one env-step of physics, with every core busy."""
    context = multiprocessing.get_context("spawn")
    cores: list[int | None] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None] * available_cores()  # pyright: ignore[reportAssignmentType]
    ready, answers = context.Barrier(len(cores)), context.Queue()
    workers = [context.Process(target=_physics, args=(core, states, seconds, ready, answers)) for core in cores]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60 + seconds) for _ in workers]
    for worker in workers:
        worker.join()
    return statistics.mean(found)


def inference_seconds(agent: Agent, num_envs: int, seconds: float) -> float:
    """CPU seconds of acting per env-step, at this batch size, on one thread."""
    loop, calls = Loop(agent, num_envs), 0
    obs, reward, start_row = np.zeros((num_envs, 27)), np.zeros(num_envs), np.zeros(num_envs, np.bool_)
    start = perf_counter()
    while perf_counter() - start < seconds:
        loop.act(obs, reward, start_row)
        calls += 1
    return (perf_counter() - start) / calls / num_envs


# -- the table -------------------------------------------------------------------------------------------------------------------------------


def measure(num_slots: int, num_workers: int, seconds: float, repeats: int) -> dict[str, Any]:
    """All rows side by side, taking turns."""
    cores = available_cores()
    family = make_family("AntDir", max_episode_steps=HORIZON)

    def manager(workers: int, **options: Any) -> ParallelEnvManager:
        return ParallelEnvManager(family, num_slots, episodes_per_trial=EPISODES, num_workers=workers, backend=BackendConfig(**options))

    serial = manager(1, threads=cores)
    agent = make_agent(serial)
    states = visited_states(serial, agent, 2000)
    names = {
        1: f"Retrial serial, {cores} threads",
        num_workers: f"Retrial process, {num_workers} workers",
        cores: f"Retrial process, {cores} workers",
    }
    rows = [retrial_row(names[1], serial, agent)]
    rows += [retrial_row(names[workers], manager(workers), agent) for workers in dict.fromkeys([num_workers, cores]) if workers > 1]
    factories = [gymnasium_ant] * num_slots
    rows += [
        vector_row(f"Gymnasium AsyncVectorEnv, {num_slots} processes", AsyncVectorEnv(factories), agent),
        vector_row(f"Gymnasium SyncVectorEnv, {num_slots} environments", SyncVectorEnv(factories), agent),
        single_row(agent),
    ]
    rates: dict[str, list[float]] = {row.name: [] for row in rows}
    physics: list[float] = []
    inference: list[float] = []
    try:
        for _ in range(repeats):
            physics.append(physics_seconds(states, seconds / 2))
            inference.append(inference_seconds(agent, num_slots, seconds / 4))
            for row in rows:
                row.run(0.3)
                rates[row.name].append(row.run(seconds))
    finally:
        for row in rows:
            row.close()
    limit = cores / (statistics.median(physics) + statistics.median(inference))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "machine": describe(),
        "slots": num_slots,
        "physics_us": statistics.median(physics) * 1e6,
        "inference_us": statistics.median(inference) * 1e6,
        "limit": limit,
        "env_steps_per_s": medians,
        "of_limit": {name: rate / limit for name, rate in medians.items()},
        "repeats": rates,
    }


def table(found: dict[str, Any]) -> str:
    """The result as text."""
    rates = found["env_steps_per_s"]
    peer = next(rate for name, rate in rates.items() if "AsyncVectorEnv" in name)
    single = next(rate for name, rate in rates.items() if "batch-1" in name)
    lines = [
        found["machine"],
        f"AntDir, N = {found['slots']}, the same GRU-128 policy acting in every row",
        f"CPU time of an env-step: physics {found['physics_us']:.0f} us, inference {found['inference_us']:.1f} us",
        f"{'':48}{'env-steps/s':>12}{'of limit':>10}{'x Async':>9}{'x loop':>8}",
    ]
    lines += [f"{name:48}{rate:12,.0f}{rate / found['limit']:10.2f}{rate / peer:9.2f}{rate / single:8.2f}" for name, rate in rates.items()]
    return "\n".join([*lines, f"{'limit':48}{found['limit']:12,.0f}"])


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=6.0, help="of every row, in each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.slots, options.workers, options.seconds, options.repeats)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()

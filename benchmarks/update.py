"""Rows per second through one full gradient update, beside a plain form of recurrent SAC in the same run.

    python -m benchmarks.update     every memory, in float32 and bfloat16, into benchmarks/results/update.json
    python -m benchmarks.update --memory GRU --profile       where the time of one goes
    python -m benchmarks.update --algorithm SAC TD3 --repeats 3
    python -m benchmarks.update --short-trials               an LSTM where many rows start a trial, alone

A row is one time step of one trial through the update of everything: critics, actor, temperature, targets.
Shapes of AntDir: 32 trials of 402 rows (two episodes of 200 steps), memories of 128, heads of three layers of
128. The plain form (`benchmarks/parts/plain_sac.py`) has the same sizes, a GRU for the actor and one for the
critic, five recurrent passes, and torch's two intra-op threads; it skips nothing and shares nothing.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.parts.learning.gemm import gemm_peak
from benchmarks.parts.learning.short_trials import measure_short_trials
from benchmarks.parts.machine import facts, write
from benchmarks.parts.plain_sac import Padded, PlainSAC
from buffers.base import Batch, Needs
from buffers.replay import Replay
from envs.base import TaskFamily
from envs.layout import Layout
from envs.meta.make_env import make_family
from policies.agents.base import AgentConfig, AgentSpec, Arch, Precision
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from policies.memory import MEMORIES
from utils.machine import available_cores, keep_freed_memory

RESULTS = Path(__file__).parent / "results" / "update.json"
TRIALS, EPISODES, HORIZON = 32, 2, 200
ROWS = EPISODES * (HORIZON + 1)
TARGETS = {"GRU": 1.8, "LSTM": 2.3, "fastest": 2.5, "fastest in bfloat16": 3.5}


def replay_of(family: TaskFamily) -> Replay:
    """Whole trials of made-up numbers."""
    layout, rng = Layout(family.spec, with_flag=True), np.random.default_rng(0)
    replay = Replay(
        obs_space=layout.obs_space,
        action_space=family.spec.action_space,
        capacity_rows=TRIALS * ROWS,
        wave_trials=TRIALS,
        rows_per_trial=ROWS,
    )
    rows, slots = layout.allocate(TRIALS), np.arange(TRIALS)
    replay.reserve(TRIALS)
    assert isinstance(rows.obs, np.ndarray)
    for time in range(ROWS):
        place = time % (HORIZON + 1)
        rows.obs[:] = rng.standard_normal(rows.obs.shape)
        rows.reward[:] = rng.standard_normal(TRIALS) if place else 0.0
        rows.episode_start[:], rows.trial_start[:] = place == 0, time == 0
        rows.truncated[:], rows.trial_end[:] = place == HORIZON, time == ROWS - 1
        rows.valid[:] = True
        actions = rng.uniform(-1, 1, rows.prev_action.shape).astype(np.float32)
        replay.write(slots, np.full(TRIALS, time), rows, slots, actions)
        rows.prev_action[:] = actions if place < HORIZON else 0.0
    replay.commit(np.full(TRIALS, ROWS))
    return replay


def algorithm_of(
    family: TaskFamily, algorithm: str, memory: str, precision: Precision = Precision.float32
) -> tuple[Algorithm, Needs]:
    """An algorithm with AntDir's recipe, on this memory."""
    kind, of_memory = ALGORITHMS[algorithm], MEMORIES[memory]
    config: Any = kind.Config()  # their batches are 32 trials by default
    agent = AgentConfig(arch=Arch.Memory, hidden=[128, 128, 128], precision=precision)
    memory_config = of_memory.fitted(of_memory.Config(hidden_size=128), ROWS)
    spec = AgentSpec(
        Layout(family.spec, with_flag=True).obs_space,
        family.spec.action_space,
        agent,
        of_memory,
        memory_config,
    )
    return kind(config, kind.make_agent(config, spec), seed=0), kind.needs(config, Arch.Memory)


def padded(batch: Batch) -> Padded:
    """The same batch for the plain form."""
    assert isinstance(batch.obs, torch.Tensor)
    columns = [one[..., None].float() for one in (batch.reward, batch.trial_end, batch.trains)]
    return Padded(batch.obs, batch.prev_action, columns[0], batch.action, columns[1], columns[2])


def seconds(act: Callable[[], object]) -> float:
    """Of one call."""
    before = perf_counter()
    act()
    return perf_counter() - before


def flops_of_update(obs: int, action: int) -> float:
    """Of the products that an update with GRUs cannot do without: three passes forward, two backward (twice
    as dear), and the heads.
    """
    inputs, hidden, heads = 64, 128, 128 + 32
    memory = 2 * 3 * hidden * (inputs + hidden) + 2 * (obs * 32 + action * 16 + 16)
    policy, q = (2 * (heads * 128 + 2 * 128 * 128 + 128 * outputs) for outputs in (2 * action, 1))
    forward = 3 * memory + policy + 2 * 2 * q  # once each in the target and in the loss
    backward = 2 * (2 * memory + policy + 2 * q)
    # The target asks the actor too; the actor's own loss goes through both values, back to actions alone.
    actors = policy + 2 * 2 * q
    return TRIALS * ROWS * (forward + backward + actors)


def rows_per_second(makers: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """All of them in turn, so that a slow minute of the machine meets all."""
    times: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(repeats):
        for name, act in makers.items():
            times[name].append(seconds(act))
    return {name: TRIALS * ROWS / statistics.median(spent) for name, spent in times.items()}


def plain_update(family: TaskFamily, batch: Batch) -> Callable[[], None]:
    """The plain form, which has all of torch's threads."""
    rows = padded(batch)
    plain = PlainSAC(rows.obs.shape[-1], rows.action.shape[-1])

    def update() -> None:
        torch.set_num_threads(available_cores())
        try:
            plain.update(rows)
        finally:
            torch.set_num_threads(1)

    return update


def profile(act: Callable[[], object]) -> str:
    """The operations that take the time of one update."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        act()
    return found.key_averages().table(sort_by="self_cpu_time_total", row_limit=18, max_name_column_width=46)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory", nargs="+", default=list(MEMORIES), choices=list(MEMORIES))
    parser.add_argument("--algorithm", nargs="+", default=["SAC"])
    parser.add_argument(
        "--precision",
        nargs="+",
        default=[one.name for one in Precision],
        choices=[one.name for one in Precision],
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--short-trials", action="store_true", help="that case alone, into a file of its own")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every run does; the plain form gains by it too
    if asked.short_trials:
        measure_short_trials(max(asked.repeats, 30))
        return
    family = make_family("AntDir", max_rollouts_per_task=EPISODES, max_episode_steps=HORIZON)
    machine = facts()
    print(machine["text"])
    replay, rng = replay_of(family), np.random.default_rng(0)
    makers: dict[str, Callable[[], object]] = {}
    for name, memory, precision in product(asked.algorithm, asked.memory, asked.precision):
        algorithm, needs = algorithm_of(family, name, memory, Precision[precision])
        title = f"{name} {memory}" if precision == "float32" else f"{name} {memory} {precision}"
        makers[title] = lambda algorithm=algorithm, needs=needs: algorithm.update(replay.sample(needs, rng))
    makers["plain form"] = plain_update(family, replay.sample(algorithm_of(family, "SAC", "GRU")[1], rng))
    for act in makers.values():
        act()
        act()
    if asked.profile:
        print("\n".join(f"{name}\n{profile(act)}" for name, act in makers.items()))
    rates = rows_per_second(makers, asked.repeats)
    whole = set(asked.memory) == set(MEMORIES) and len(asked.precision) == len(Precision)
    report(machine, rates, save=whole and asked.algorithm == ["SAC"])


def report(machine: dict[str, Any], rates: dict[str, float], *, save: bool) -> None:
    """Print the table, and save it."""
    peaks, flops = {threads: gemm_peak(threads) for threads in {1, available_cores()}}, flops_of_update(28, 8)
    print(f"{'':28}{'rows/s':>10}{'s/update':>10}{'x plain':>9}")
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        print(f"{name:28}{rate:10,.0f}{TRIALS * ROWS / rate:10.3f}{rate / rates['plain form']:9.2f}")
    gru = rates.get("SAC GRU")
    if gru is not None:
        share = gru / (TRIALS * ROWS) * flops / 1e9 / peaks[available_cores()]
        reached = ", ".join(f"{peak:.0f} GFLOP/s on {threads}" for threads, peak in sorted(peaks.items()))
        print(f"GEMM peak {reached}; SAC GRU reaches {share:.0%} of it")
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process {memory_mib:.0f} MiB")
    if save:
        write(
            RESULTS,
            {
                "machine": machine,
                "rows_per_s": rates,
                "targets": TARGETS,
                "gemm_gflops": peaks,
                "peak_mib": memory_mib,
            },
        )


if __name__ == "__main__":
    main()

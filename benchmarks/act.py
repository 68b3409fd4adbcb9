"""What acting costs: microseconds per slot of one batched step of the agent, for every memory.

    python -m benchmarks.act                     1, 12, 64 and 256 slots, and benchmarks/results/act.json
    python -m benchmarks.act --memory GRU LSTM

AntDir's observations and actions, memories of 128, a policy head of three layers of 128, one thread. All
memories take turns, in a hot loop: beside environments, which push the weights out of the caches, a step of a
dozen slots costs about twice as much.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from benchmarks.parts.machine import facts, write
from benchmarks.update import algorithm_of
from envs.meta.make_env import make_family
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from policies.memory import MEMORIES

RESULTS = Path(__file__).parent / "results" / "act.json"
SLOTS = (1, 12, 64, 256)
# In a turn; a transformer's cache grows by as many.
STEPS = 50


class Acting:
    """An agent that acts for so many slots."""

    def __init__(self, agent: Agent, num_slots: int) -> None:
        self._agent, self._state = agent, agent.initial_state(num_slots)
        actions, flags = torch.zeros(num_slots, agent.actions.dim), torch.zeros(num_slots, dtype=torch.bool)
        self._rows = PolicyRows(torch.randn(num_slots, 28), torch.randn(num_slots), actions, flags, flags)
        self._noise = torch.from_numpy(agent.draw_noise(np.random.default_rng(0), num_slots))

    def seconds(self) -> float:
        """Of one step, over a turn."""
        before = perf_counter()
        with torch.inference_mode():
            for _ in range(STEPS):
                _, _, self._state = self._agent.act(self._rows, self._state, self._noise)
        return (perf_counter() - before) / STEPS


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory", nargs="+", default=list(MEMORIES), choices=list(MEMORIES))
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    family, machine = make_family("AntDir"), facts()
    print(f"{machine['text']}\n{'us per slot':24}" + "".join(f"{f'N={n}':>10}" for n in SLOTS))
    found: dict[str, dict[str, float]] = {name: {} for name in asked.memory}
    for num_slots in SLOTS:
        acting = {
            name: Acting(algorithm_of(family, "SAC", name)[0].agent, num_slots) for name in asked.memory
        }
        times: dict[str, list[float]] = {name: [] for name in acting}
        for _ in range(asked.repeats + 1):
            for name, one in acting.items():
                times[name].append(one.seconds())
        for name, spent in times.items():
            found[name][str(num_slots)] = 1e6 * statistics.median(spent[1:]) / num_slots
    for name, cost in found.items():
        print(f"{name:24}" + "".join(f"{us:10.2f}" for us in cost.values()))
    if set(asked.memory) == set(MEMORIES):
        write(RESULTS, {"machine": machine, "us_per_slot": found})


if __name__ == "__main__":
    main()

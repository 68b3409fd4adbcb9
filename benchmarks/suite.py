"""How fast every family steps: `Shard.step` alone, beside bare `mj_step` on all cores for the robots.

    python -m benchmarks.suite      every family at 1 to 256 slots, into benchmarks/results/suite.json
    python -m benchmarks.suite AntDir Wind --slots 64 --seconds 1

Robots use a thread per core, everything else one core. Episodes are played with random actions to their ends;
starting them is not timed. Bare `mj_step` is timed on states that these very episodes went through, with the
models and the warm starts that they had, in one process per core.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import fields
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.parts.machine import facts, on_every_core, write
from benchmarks.parts.targets import met_text
from benchmarks.scores import family_name
from envs.base import Shelf, TaskFamily, uniform_actions
from envs.layout import Layout
from envs.meta import FAMILIES
from envs.meta.locomotion.mujoco_shard import MujocoShard, mujoco_module
from envs.meta.make_env import make_family
from utils.machine import available_cores

RESULTS = Path(__file__).parent / "results" / "suite.json"
SLOTS = (1, 12, 64, 256)
# Slots whose states are kept, for the bare physics.
KEPT = 8
# Targets: robots without contacts at 64 slots, microseconds more with contacts, and toys at 256 slots.
OF_BARE, MORE_US, TOY_RATE = 0.85, 12.0, 1e6

Variant = tuple[str, dict[str, Any]]


def variants(names: list[str]) -> list[Variant]:
    """Every family, and again with contacts where it has them."""
    found: list[Variant] = []
    for name in names:
        found.append((name, {}))
        if any(item.name == "contacts" for item in fields(FAMILIES[name].Config)):
            found.append((name, {"contacts": True}))
    return found


class Played:
    """A shard whose episodes go on for ever, each at a step of its own."""

    def __init__(self, family: TaskFamily, num_slots: int, threads: int) -> None:
        self._family, self._n = family, num_slots
        self.shard = family.make_shard(num_slots, threads)
        self.rows = Layout(family.spec).allocate(num_slots)
        self.shard.bind(self.rows)
        self._rng, self._all = np.random.default_rng(0), np.arange(num_slots)
        self.tasks = family.sample_tasks(self._rng, num_slots, "train")
        self._left = np.zeros(num_slots, np.int64)
        self._begin(self._all)
        self._left -= self._rng.integers(family.config.max_episode_steps, size=num_slots)

    def _begin(self, slots: NDArray[np.int64]) -> None:
        self.shard.reset(
            slots, self.tasks[slots], self._rng.integers(2**63, size=len(slots)).astype(np.uint64)
        )
        self._left[slots] = self._family.config.max_episode_steps

    def begin_ended(self) -> None:
        """Start an episode where one has ended."""
        ended = np.flatnonzero(self.rows.terminated | (self._left <= 0))
        if len(ended):
            self.rows.terminated[ended] = False
            self._begin(ended)

    def draw(self) -> NDArray[Any]:
        """Random actions."""
        return uniform_actions(self._rng, self._family.spec.action_space, self._n)

    def step(self, actions: NDArray[Any]) -> float:
        """One step of every slot; the seconds that it took."""
        before = perf_counter()
        self.shard.step(self._all, actions)
        spent = perf_counter() - before
        self._left -= 1
        return spent

    def seconds_per_step(self, seconds: float) -> float:
        """Seconds of an env-step."""
        spent, rounds, until = 0.0, 0, perf_counter() + seconds
        while rounds < 3 or perf_counter() < until:
            self.begin_ended()
            spent += self.step(self.draw())
            rounds += 1
        return spent / (rounds * self._n)


def states_of(variant: Variant) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The tasks of a few slots, and [slot, time, ...] the states before steps of theirs, with the torques
    that follow.
    """
    family = make_family(variant[0], **variant[1])
    played = Played(family, KEPT, 1)
    assert isinstance(played.shard, MujocoShard)
    states: list[NDArray[np.float64]] = []
    for time in range(600):
        played.begin_ended()
        before = played.shard.batch.state.copy()
        played.step(played.draw())
        if time % 3 == 0:
            states.append(before)
    played.shard.close()
    return played.tasks, np.stack(states, axis=1)


def bare_seconds(variant: Variant, seconds: float) -> float:
    """Seconds of an env-step of bare `mj_step`, with every core busy."""
    tasks, states = states_of(variant)
    times = on_every_core(_seconds_of_mj_step, variant, tasks, states, seconds, timeout=60 + seconds)
    return 1.0 / sum(1.0 / time for time in times)


def _seconds_of_mj_step(variant: Variant, tasks: Any, states: Any, seconds: float, barrier: Any) -> float:
    """Seconds of `mj_step` on these states, on this core."""
    mujoco = mujoco_module()
    family = make_family(variant[0], **variant[1])
    shard = family.make_shard(len(tasks), 1)
    assert isinstance(shard, MujocoShard)
    shard.bind(Layout(family.spec).allocate(len(tasks)))
    shard.reset(np.arange(len(tasks)), tasks, np.arange(len(tasks)).astype(np.uint64))
    models = [shard.batch.get_model(slot) for slot in range(len(tasks))]
    data, frames = mujoco.MjData(models[0]), shard.robot.frame_skip
    kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    barrier.wait()
    spent, steps, until = 0.0, 0, perf_counter() + seconds
    while perf_counter() < until:
        slot, time = steps % len(models), steps // len(models) % states.shape[1]
        mujoco.mj_setState(models[slot], data, states[slot, time], kind)
        before = perf_counter()
        mujoco.mj_step(models[slot], data, frames)
        spent += perf_counter() - before
        steps += 1
    return spent / steps


def measure_family(variant: Variant, slots: list[int], seconds: float, repeats: int) -> dict[str, Any]:
    """Microseconds of an env-step at each number of slots, and of bare physics."""
    family = make_family(variant[0], **variant[1])
    robot = type(family).shelf is Shelf.locomotion
    found: dict[str, Any] = {
        "robot": robot,
        "contacts": bool(variant[1].get("contacts")),
        "us": {},
        "bare_us": None,
    }
    rounds: dict[int, list[float]] = {n: [] for n in slots}
    bare: list[float] = []
    # All take turns, so that a slow minute of the machine meets all of them.
    for _ in range(repeats):
        if robot:
            bare.append(bare_seconds(variant, seconds))
        for n in slots:
            played = Played(family, n, available_cores() if robot else 1)
            played.seconds_per_step(seconds / 5)
            rounds[n].append(played.seconds_per_step(seconds))
            played.shard.close()
    found["us"] = {str(n): 1e6 * statistics.median(times) for n, times in rounds.items()}
    found["bare_us"] = 1e6 * statistics.median(bare) if bare else None
    return found


def verdict(one: dict[str, Any]) -> str:
    """The target of a family and whether it is met; nothing where its number of slots was not measured."""
    us, bare = one["us"], one["bare_us"]
    if bare is None:
        if "256" not in us:
            return ""
        rate = 1e6 / us["256"]
        return f"{rate / 1e6:.1f} M/s of {TOY_RATE / 1e6:.0f} wanted: {met_text(rate >= TOY_RATE)}"
    if "64" not in us:
        return ""
    if one["contacts"]:
        more = us["64"] - bare
        return f"{more:+.1f} us of {MORE_US:.0f} allowed: {met_text(more <= MORE_US)}"
    share = bare / us["64"]
    return f"{share:.2f} of bare physics, {OF_BARE} wanted: {met_text(share >= OF_BARE)}"


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FAMILY",
        type=family_name,
        help="families; default: all but third-party ones",
    )
    parser.add_argument("--slots", nargs="+", type=int, default=list(SLOTS))
    parser.add_argument("--seconds", type=float, default=0.5, help="of every measurement")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    everything = [name for name, kind in FAMILIES.items() if kind.shelf is not Shelf.third_party]
    machine, found = facts(), dict[str, Any]()
    print(machine["text"])
    print(
        f"{'env-steps/s of Shard.step':30}"
        + "".join(f"{f'N={n}':>12}" for n in asked.slots)
        + f"{'mj_step':>12}  target"
    )
    for variant in variants(asked.names or everything):
        name = " ".join([variant[0], *(f"{key}={str(value).lower()}" for key, value in variant[1].items())])
        one = found[name] = measure_family(variant, asked.slots, asked.seconds, asked.repeats)
        bare = f"{1e6 / one['bare_us']:12,.0f}" if one["bare_us"] else f"{'':12}"
        print(
            f"{name:30}"
            + "".join(f"{1e6 / us:12,.0f}" for us in one["us"].values())
            + f"{bare}  {verdict(one)}",
            flush=True,
        )
    if not asked.names:
        write(RESULTS, {"machine": machine, "families": found})


if __name__ == "__main__":
    main()

"""backend=auto: measure one family's environments for a moment, and pick what should step them fastest on this machine.

It picks the backend and, where not given, the workers; never the slots, the groups or anything else that changes the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter, thread_time

import numpy as np

from envs.async_shard import AsyncShard
from envs.backends.base import BackendConfig
from envs.base import Layout, Shard, TaskFamily, uniform_actions
from utils.machine import available_cores

MOMENT_S = 0.1
"""How long each thing is measured."""
WAITS = 0.5
"""A step that uses less of its time than this is waiting for something."""
MOST_THREADS = 64
WORTH = 0.85
"""What is only a little faster is not worth another process or thread."""
ROUND_S, WORKER_S = 30e-6, 30e-6
"""What handing a round over to worker processes costs (benchmarks/collect.py): once, and for each of them."""


@dataclass(frozen=True)
class Choice:
    """The backend with its settings, the number of workers, and why."""

    backend: BackendConfig
    num_workers: int
    reason: str


@dataclass(frozen=True)
class Costs:
    """Seconds of one step of all slots: of the wall clock, of this thread's CPU, and with the family's own threads."""

    wall: float
    cpu: float
    threaded: float
    waits_in_coroutines: bool = False


def choose(
    family: TaskFamily,
    config: BackendConfig,
    num_slots: int,
    *,
    num_workers: int | None = None,
    num_groups: int = 1,
    act: Callable[[], object] | None = None,
) -> Choice:
    """What should step `num_slots` slots fastest, beside a policy that `act` calls once; what is given is obeyed."""
    most, cores = num_slots // num_groups, available_cores()
    if config.name in ("serial", "asyncio"):
        return Choice(config, 1, "")
    if config.name in ("process", "pipe"):
        return Choice(config, num_workers or min(cores, most), "")
    if config.name == "thread" and num_workers is not None:
        return Choice(config, num_workers, "")
    costs = measure(family, num_slots, config.threads or cores)
    if config.name == "thread":
        waits, own = costs.cpu < WAITS * costs.wall, costs.threaded < WORTH * costs.wall
        return Choice(config, min(most, MOST_THREADS) if waits else 1 if own else min(cores, most), "")
    return decide(costs, config, num_slots, num_workers=num_workers, num_groups=num_groups, act=0.0 if act is None else seconds_of(act)[0])


def measure(family: TaskFamily, num_slots: int, threads: int) -> Costs:
    """Step all slots for a moment, in this thread alone and with the family's own threads."""
    wall, cpu, kind = _stepping(family, num_slots, 1)
    threaded = _stepping(family, num_slots, threads)[0] if threads > 1 and cpu > WAITS * wall else wall
    return Costs(wall, cpu, threaded, issubclass(kind, AsyncShard))


def decide(costs: Costs, config: BackendConfig, num_slots: int, *, num_workers: int | None, num_groups: int, act: float) -> Choice:
    """The choice that follows from these costs."""
    most, apart = num_slots // num_groups, config.max_worker_memory is not None
    step = f"a step of {num_slots} slots takes {_text(costs.wall)}"
    if costs.cpu < WAITS * costs.wall and not apart:
        waits = f"{step}, {1 - costs.cpu / costs.wall:.0%} of it waiting"
        if costs.waits_in_coroutines and num_workers in (None, 1):
            return _choice(config, "asyncio", 1, f"{waits} in coroutines")
        workers = num_workers or min(most, MOST_THREADS)
        if workers > 1:
            return _choice(config, "thread", workers, f"{waits}: threads wait side by side")
    cores = available_cores()
    workers = num_workers or min(cores, most)
    alone = act + costs.threaded
    spread = act + costs.wall / min(workers, cores) + ROUND_S + WORKER_S * workers
    beside = f"the policy {_text(act)}"
    here = config.min_ready is None and not apart
    if num_workers is None and here and (WORTH * alone <= spread or workers == 1):
        own = costs.threaded < WORTH * costs.wall
        why = f"{_text(costs.threaded)} with the family's own threads" if own else "which is not worth a hand-over to processes"
        return _choice(config, "serial", 1, f"{step}, {why}; {beside}")
    if workers == 1 and here:
        return _choice(config, "serial", 1, "one worker steps in this process")
    return _choice(config, "process", workers, f"{step} of CPU, {beside}")


def _choice(config: BackendConfig, name: str, workers: int, reason: str) -> Choice:
    threads = config.threads if name in ("serial", "thread") else None
    return Choice(replace(config, name=name, threads=threads), workers, f"backend=auto: {name}, since {reason}")


def _stepping(family: TaskFamily, num_slots: int, threads: int) -> tuple[float, float, type[Shard]]:
    """Seconds of the wall clock and of this thread's CPU for one step of all slots; the kind of the shard."""
    layout = Layout(family.spec)
    shard = family.make_shard(num_slots, threads)
    try:
        rng, slots, rows = np.random.default_rng(0), np.arange(num_slots), layout.allocate(num_slots)
        shard.bind(rows)
        tasks = family.sample_tasks(rng, num_slots, "train")

        def restart(some: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
            shard.reset(some, tasks[some], rng.integers(2**63, size=len(some)).astype(np.uint64))

        def step() -> None:
            shard.step(slots, uniform_actions(rng, family.spec.action_space, num_slots))
            ended = np.flatnonzero(rows.ended)
            if len(ended):
                restart(ended)
                rows.terminated[ended] = rows.truncated[ended] = False

        restart(slots)
        return (*seconds_of(step), type(shard))
    finally:
        shard.close()


def seconds_of(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the wall clock and of this thread's CPU that a call takes, in the middle of a moment of calls."""
    call()  # the first one is never like the others
    walls, cpus, start = list[float](), list[float](), perf_counter()
    while not walls or perf_counter() - start < MOMENT_S:
        wall, cpu = perf_counter(), thread_time()
        call()
        walls.append(perf_counter() - wall)
        cpus.append(thread_time() - cpu)
    return float(np.median(walls)), float(np.median(cpus))


def _text(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"

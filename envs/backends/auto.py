"""backend=auto: measure a few of a family's environments for a moment, and pick what should step them fastest
on this machine.

It picks the backend and, where not given, the workers; never the slots, the groups or anything else that
changes the data. The environments are measured in a worker process that is then thrown away: what raises,
hangs or dies there does so without the trainer, and in bounded time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.backends.base import BackendConfig, BackendError, Block, Commands, ShardHost, shorten
from envs.backends.workers.isolation import inside_worker
from envs.backends.workers.process import ProcessBackend
from envs.base import EnvConfig, EnvSpec, Shard, TaskFamily, uniform_actions
from envs.layout import Layout
from utils.machine import available_cores

MOMENT_S = 0.1
"""How long each thing is measured, after its first call."""
DEADLINE_S = 30.0
"""How long measuring the environments may take altogether."""
FEW = 4
"""At most so many slots are measured; what more of them cost is extrapolated."""
SLOW_S, SLOW_BUILD_S = 0.5, 5.0
"""One slot that takes longer to step or to build is measured alone."""
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
    """Seconds of one step of all slots: of the wall clock, of this thread's CPU, and with the family's own
    threads.
    """

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
    """What should step `num_slots` slots fastest, beside a policy that `act` calls once; what is given is
    obeyed.
    """
    most, cores = num_slots // num_groups, available_cores()
    if config.name in ("serial", "asyncio"):
        return Choice(config, 1, "")
    if config.name in ("process", "pipe"):
        return Choice(config, num_workers or min(cores, most), "")
    if config.name == "thread" and num_workers is not None:
        return Choice(config, num_workers, "")
    try:
        costs = measure(family, config, num_slots)
    except (BackendError, MeasurementError) as error:
        if inside_worker():
            raise
        return _unmeasured(error, config, num_workers, min(cores, most))
    if config.name == "thread":
        waits, own = costs.cpu < WAITS * costs.wall, costs.threaded < WORTH * costs.wall
        return Choice(config, min(most, MOST_THREADS) if waits else 1 if own else min(cores, most), "")
    return decide(
        costs,
        config,
        num_slots,
        num_workers=num_workers,
        num_groups=num_groups,
        act=0.0 if act is None else seconds_of(act).wall,
    )


def decide(
    costs: Costs,
    config: BackendConfig,
    num_slots: int,
    *,
    num_workers: int | None,
    num_groups: int,
    act: float,
) -> Choice:
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
        why = (
            f"{_text(costs.threaded)} with the family's own threads"
            if own
            else "which is not worth a hand-over to processes"
        )
        return _choice(config, "serial", 1, f"{step}, {why}; {beside}")
    if workers == 1 and here:
        return _choice(config, "serial", 1, "one worker steps in this process")
    return _choice(config, "process", workers, f"{step} of CPU, {beside}")


def _choice(config: BackendConfig, name: str, workers: int, reason: str) -> Choice:
    threads = config.threads if name in ("serial", "thread") else None
    return Choice(
        replace(config, name=name, threads=threads), workers, f"backend=auto: {name}, since {reason}"
    )


def _unmeasured(error: Exception, config: BackendConfig, given: int | None, workers: int) -> Choice:
    """The choice where nothing is known: worker processes, which contain faults; this process where they
    cannot be, and were not asked for.
    """
    if config.name == "thread":
        return Choice(config, workers, "")
    why = shorten(str(error).splitlines()[0], 300)
    if isinstance(error, MeasurementError):
        return _choice(config, "process", given or workers, f"{why}: worker processes contain faults")
    asked = given not in (None, 1) or config.min_ready is not None or config.max_worker_memory is not None
    return _choice(
        config,
        "process" if asked else "serial",
        given or (workers if asked else 1),
        f"it could not be measured in a worker: {why}",
    )


# -- measuring, from the trainer -----------------------------------------------------------------------------


class MeasurementError(RuntimeError):
    """The environments failed, or took too long, while they were measured."""


def measure(family: TaskFamily, config: BackendConfig, num_slots: int) -> Costs:
    """Step a few slots for a moment, in a worker process. A `BackendError` if there can be none, a
    `MeasurementError` for all that goes wrong.
    """
    allowed = min(DEADLINE_S, config.construct_timeout_s + config.call_timeout_s)
    due = perf_counter() + allowed
    measurement = Measurement(family, num_slots, config.threads or available_cores())
    one = np.array([0])
    try:
        started = ProcessBackend(
            [Block(measurement, 0, 1)],
            Layout(measurement.spec),
            num_workers=1,
            config=replace(config, construct_timeout_s=allowed),
        )
        with closing(started) as backend:
            commands = Commands.empty(backend.rows)
            commands.reset[:] = True
            backend.post(one, commands)
            _, faults = backend.wait(one, max(due - perf_counter(), 0.1))
            obs = backend.rows.obs
    except BackendError as error:
        if perf_counter() < due:
            raise
        raise MeasurementError(f"measuring it took more than {allowed:g} s") from error
    if faults:
        what = faults[0].sentence.removeprefix("raised ").removeprefix("was lost: ")
        raise MeasurementError(
            f"measuring it {f'failed ({what})' if perf_counter() < due else f'took more than {allowed:g} s'}"
        )
    assert isinstance(obs, np.ndarray)
    wall, cpu, threaded, waits_in_coroutines = obs[0].tolist()
    return Costs(wall, cpu, threaded, bool(waits_in_coroutines))


# -- measuring, in the worker --------------------------------------------------------------------------------


class Measurement(TaskFamily):
    """A family of one slot whose reset measures another family and whose observation is what that costs: any
    backend can run it.
    """

    def __init__(self, family: TaskFamily, num_slots: int, threads: int) -> None:
        super().__init__(EnvConfig())
        self.family, self.num_slots, self.threads = family, num_slots, threads
        self.spec = EnvSpec(
            "measurement", spaces.Box(0.0, np.inf, (4,), np.float64), spaces.Box(0.0, 1.0, (1,)), task_dim=1
        )

    def __call__(self) -> TaskFamily:
        return self

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return np.zeros((n, 1))

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return _MeasuringShard(self)


class _MeasuringShard(Shard):
    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        asked = self._measurement
        costs = costs_of(asked.family, asked.num_slots, asked.threads)
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[0] = costs.wall, costs.cpu, costs.threaded, costs.waits_in_coroutines

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None: ...


class Seconds(NamedTuple):
    """Of the wall clock, and of this thread's CPU."""

    wall: float
    cpu: float


def costs_of(family: TaskFamily, num_slots: int, threads: int) -> Costs:
    """What a step of all slots costs, judged by one slot and by a few: in this thread alone, and with the
    family's own threads.
    """
    one, kind, build_s = _stepping(family, 1, 1)
    in_coroutines, few = issubclass(kind, AsyncShard), min(FEW, num_slots)
    if few == 1 or one.wall > SLOW_S or build_s > SLOW_BUILD_S:
        wall, cpu = one if in_coroutines else (num_slots * one.wall, num_slots * one.cpu)
        return Costs(wall, cpu, wall, in_coroutines)
    some = _stepping(family, few, 1)[0]
    wall, cpu = (
        first + max(0.0, last - first) / (few - 1) * (num_slots - 1)
        for first, last in zip(one, some, strict=True)
    )
    if threads == 1 or cpu <= WAITS * wall:
        return Costs(wall, cpu, wall, in_coroutines)
    ratio = _stepping(family, few, min(threads, few))[0].wall / some.wall
    most = min(threads, available_cores())
    return Costs(wall, cpu, wall * with_threads(ratio, min(most, few), min(most, num_slots)), in_coroutines)


def with_threads(ratio: float, few: int, many: int) -> float:
    """The part of its time that a step takes with many threads, by Amdahl's law, when it takes `ratio` of it
    with a few.
    """
    if many == few:
        return ratio
    shared = min(max((1 - ratio) / (1 - 1 / few), 0.0), 1.0)
    return 1 - shared + shared / many


def _stepping(family: TaskFamily, num_slots: int, threads: int) -> tuple[Seconds, type[Shard], float]:
    """What one step of so many slots takes, the kind of their shard, and how many seconds it took to build."""
    layout, slots = Layout(family.spec), np.arange(num_slots)
    rows = layout.allocate(num_slots)
    rng, start = np.random.default_rng(0), perf_counter()
    host = ShardHost([Block(lambda: family, 0, num_slots)], layout, rows, threads)
    build_s = perf_counter() - start
    (shard,) = host.shards
    try:
        tasks = family.sample_tasks(rng, num_slots, "train")

        def restart(some: NDArray[np.int64]) -> None:
            host.reset(some, tasks[some], rng.integers(2**63, size=len(some)).astype(np.uint64))

        def step() -> None:
            host.step(slots, uniform_actions(rng, family.spec.action_space, num_slots))
            ended = np.flatnonzero(rows.ended)
            if len(ended):
                restart(ended)

        restart(slots)
        return seconds_of(step), type(shard), build_s
    finally:
        with suppress(Exception):  # the run will tell
            shard.close()


def seconds_of(call: Callable[[], object]) -> Seconds:
    """What a call takes: the median of a moment of calls, or the first one if that takes longer than the
    moment.
    """
    first = _timed(call)
    if first.wall > MOMENT_S:
        return first
    found, start = list[Seconds](), perf_counter()
    while not found or perf_counter() - start < MOMENT_S:
        found.append(_timed(call))
    wall, cpu = np.median(found, axis=0).tolist()
    return Seconds(wall, cpu)


def _timed(call: Callable[[], object]) -> Seconds:
    wall, cpu = perf_counter(), thread_time()
    call()
    return Seconds(perf_counter() - wall, thread_time() - cpu)


def _text(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"

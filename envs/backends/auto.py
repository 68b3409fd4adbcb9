"""backend=auto: measure a few of a family's environments for a moment, and choose what steps them fastest.

It chooses the backend and, where not given, the workers; never the slots, the groups or anything else that
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
from envs.backends.base import BackendConfig, BackendError, Block, Commands, shorten
from envs.backends.shard_host import ShardHost
from envs.backends.workers.isolation import inside_worker
from envs.backends.workers.process import ProcessBackend
from envs.base import EnvConfig, EnvSpec, Shard, TaskFamily, uniform_actions
from envs.layout import Layout
from envs.trial import TrialClock
from utils.machine import available_cores

# How long each thing is measured, after its first call.
MOMENT_S = 0.1
# How long measuring the environments may take altogether.
DEADLINE_S = 30.0
# At most so many slots are measured; what more of them cost is extrapolated.
FEW = 4
# One slot that takes longer to step or to build is measured alone.
SLOW_S, SLOW_BUILD_S = 0.5, 5.0
# A step that uses less of its time than this is waiting for something.
WAITS = 0.5
MOST_THREADS = 64
# What is only a little faster is not worth another process or thread.
WORTH = 0.85
# What handing a round over to worker processes costs (benchmarks/collect.py): once, and for each of them.
ROUND_S, WORKER_S = 30e-6, 30e-6


@dataclass(frozen=True)
class BackendChoice:
    """The backend with its settings, the number of workers, and why."""

    backend: BackendConfig
    num_workers: int
    reason: str


@dataclass(frozen=True)
class StepCosts:
    """The seconds that one step of all slots takes."""

    # Of the wall clock.
    wall: float
    # Of this thread's CPU; less than `wall` if the environments wait.
    cpu: float
    # Of the wall clock, with the family's own threads.
    threaded: float
    waits_in_coroutines: bool = False


def choose_backend(
    family: TaskFamily,
    config: BackendConfig,
    num_slots: int,
    *,
    num_workers: int | None = None,
    num_groups: int = 1,
    act: Callable[[], object] | None = None,
) -> BackendChoice:
    """Choose what steps the slots fastest, beside a policy that `act` calls once; what is given is obeyed."""
    most_workers, cores = num_slots // num_groups, available_cores()

    # A backend that is given by name needs no measurement, but for the number of threads.
    if config.name in ("serial", "asyncio"):
        return BackendChoice(config, 1, "")
    if config.name in ("process", "pipe"):
        return BackendChoice(config, num_workers or min(cores, most_workers), "")
    if config.name == "thread" and num_workers is not None:
        return BackendChoice(config, num_workers, "")

    try:
        costs = measure_costs(family, config, num_slots)
    except (BackendError, MeasurementError) as error:
        if inside_worker():
            raise
        return _choice_without_costs(error, config, num_workers, min(cores, most_workers))
    if config.name == "thread":
        return BackendChoice(config, _num_threads(costs, most_workers), "")
    return choice_from_costs(
        costs,
        config,
        num_slots,
        num_workers=num_workers,
        num_groups=num_groups,
        act=0.0 if act is None else seconds_of(act).wall,
    )


def _num_threads(costs: StepCosts, most_workers: int) -> int:
    if costs.cpu < WAITS * costs.wall:
        return min(most_workers, MOST_THREADS)  # threads that wait need no core
    # The family's own threads may use the cores already.
    return 1 if costs.threaded < WORTH * costs.wall else min(available_cores(), most_workers)


def choice_from_costs(
    costs: StepCosts,
    config: BackendConfig,
    num_slots: int,
    *,
    num_workers: int | None,
    num_groups: int,
    act: float,
) -> BackendChoice:
    """Choose from measured costs; `act` is what the policy takes for one round."""
    most_workers, cores = num_slots // num_groups, available_cores()
    needs_processes = config.max_worker_memory is not None
    step = f"a step of {num_slots} slots takes {_duration_text(costs.wall)}"

    # Environments that wait: many of them can wait at the same time, in coroutines or in threads.
    if costs.cpu < WAITS * costs.wall and not needs_processes:
        waits = f"{step}, {1 - costs.cpu / costs.wall:.0%} of it waiting"
        if costs.waits_in_coroutines and num_workers in (None, 1):
            return _auto_choice(config, "asyncio", 1, f"{waits} in coroutines")
        workers = num_workers or min(most_workers, MOST_THREADS)
        if workers > 1:
            return _auto_choice(config, "thread", workers, f"{waits}: threads wait side by side")

    # Environments that compute: in this process, unless workers save more than the hand-over to them costs.
    workers = num_workers or min(cores, most_workers)
    round_here = act + costs.threaded
    round_in_workers = act + costs.wall / min(workers, cores) + ROUND_S + WORKER_S * workers
    policy = f"the policy {_duration_text(act)}"
    serial_is_possible = config.min_ready is None and not needs_processes
    serial_is_enough = WORTH * round_here <= round_in_workers or workers == 1
    if num_workers is None and serial_is_possible and serial_is_enough:
        if costs.threaded < WORTH * costs.wall:
            why = f"{_duration_text(costs.threaded)} with the family's own threads"
        else:
            why = "which is not worth a hand-over to processes"
        return _auto_choice(config, "serial", 1, f"{step}, {why}; {policy}")
    if workers == 1 and serial_is_possible:
        return _auto_choice(config, "serial", 1, "one worker steps in this process")
    return _auto_choice(config, "process", workers, f"{step} of CPU, {policy}")


def _auto_choice(config: BackendConfig, name: str, workers: int, reason: str) -> BackendChoice:
    threads = config.threads if name in ("serial", "thread") else None
    return BackendChoice(
        replace(config, name=name, threads=threads), workers, f"backend=auto: {name}, since {reason}"
    )


def _choice_without_costs(
    error: Exception, config: BackendConfig, given: int | None, workers: int
) -> BackendChoice:
    """Choose where nothing could be measured: worker processes, if there can be any: they contain faults."""
    if config.name == "thread":
        return BackendChoice(config, workers, "")
    why = shorten(str(error).splitlines()[0], 300)

    # The environments failed, but worker processes can be started.
    if isinstance(error, MeasurementError):
        return _auto_choice(config, "process", given or workers, f"{why}: worker processes contain faults")

    # No worker process could be started: only an explicit wish for workers is tried again.
    why = f"it could not be measured in a worker: {why}"
    if given not in (None, 1) or config.min_ready is not None or config.max_worker_memory is not None:
        return _auto_choice(config, "process", given or workers, why)
    return _auto_choice(config, "serial", given or 1, why)


# -- measuring, from the trainer -----------------------------------------------------------------------------


class MeasurementError(RuntimeError):
    """The environments failed, or took too long, while they were measured."""


def measure_costs(family: TaskFamily, config: BackendConfig, num_slots: int) -> StepCosts:
    """Step a few slots for a moment, in a worker process.

    A `BackendError` says that no worker can be started, a `MeasurementError` that anything else went wrong.
    """
    allowed = min(DEADLINE_S, config.construct_timeout_s + config.call_timeout_s)
    deadline = perf_counter() + allowed
    too_long = f"measuring it took more than {allowed:g} s"
    measurement = Measurement(family, num_slots, config.threads or available_cores())
    try:
        with closing(
            ProcessBackend(
                [Block(measurement, 0, 1)],
                Layout(measurement.spec),
                num_workers=1,
                config=replace(config, construct_timeout_s=allowed),
            )
        ) as backend:
            # The reset of the one slot measures, and its observation is the result.
            slots, commands = np.array([0]), Commands.empty(backend.rows)
            commands.reset[:] = True
            backend.post(slots, commands)
            _, faults = backend.wait(slots, max(deadline - perf_counter(), 0.1))
            obs = backend.rows.obs
    except BackendError as error:
        if perf_counter() < deadline:
            raise
        raise MeasurementError(too_long) from error
    if faults:
        what = faults[0].sentence.removeprefix("raised ").removeprefix("was lost: ")
        raise MeasurementError(f"measuring it failed ({what})" if perf_counter() < deadline else too_long)
    assert isinstance(obs, np.ndarray)
    wall, cpu, threaded, waits_in_coroutines = obs[0].tolist()
    return StepCosts(wall, cpu, threaded, bool(waits_in_coroutines))


# -- measuring, in the worker --------------------------------------------------------------------------------


class Measurement(TaskFamily):
    """A family of one slot whose reset measures another family; its observation is the costs.

    So any backend can run the measurement.
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
        measurement = self._measurement
        costs = costs_of(measurement.family, measurement.num_slots, measurement.threads)
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[0] = costs.wall, costs.cpu, costs.threaded, costs.waits_in_coroutines

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None: ...


class Seconds(NamedTuple):
    """How long a call takes."""

    # Of the wall clock.
    wall: float
    # Of this thread's CPU.
    cpu: float


def costs_of(family: TaskFamily, num_slots: int, threads: int) -> StepCosts:
    """Estimate what a step of all slots costs, from one slot and from a few."""
    one, shard_type, build_s = _measure_steps(family, 1, 1)
    in_coroutines, few = issubclass(shard_type, AsyncShard), min(FEW, num_slots)

    # Slow environments are measured with one slot only. Coroutines wait together, others one by one.
    if few == 1 or one.wall > SLOW_S or build_s > SLOW_BUILD_S:
        wall, cpu = one if in_coroutines else (num_slots * one.wall, num_slots * one.cpu)
        return StepCosts(wall, cpu, wall, in_coroutines)

    # From one slot and a few slots along a straight line to all of them.
    some = _measure_steps(family, few, 1)[0]
    wall, cpu = (
        first + max(0.0, last - first) / (few - 1) * (num_slots - 1)
        for first, last in zip(one, some, strict=True)
    )
    if threads == 1 or cpu <= WAITS * wall:
        return StepCosts(wall, cpu, wall, in_coroutines)

    # With the family's own threads, as far as there are cores for them.
    ratio = _measure_steps(family, few, min(threads, few))[0].wall / some.wall
    most = min(threads, available_cores())
    threaded = wall * with_threads(ratio, min(most, few), min(most, num_slots))
    return StepCosts(wall, cpu, threaded, in_coroutines)


def with_threads(ratio: float, few: int, many: int) -> float:
    """Return the part of its time that a step takes with many threads, by Amdahl's law.

    `ratio` is the part that it takes with a few threads.
    """
    if many == few:
        return ratio
    # Amdahl: ratio = (1 - parallel) + parallel / few, solved for the part that runs in parallel.
    parallel = min(max((1 - ratio) / (1 - 1 / few), 0.0), 1.0)
    return 1 - parallel + parallel / many


def _measure_steps(family: TaskFamily, num_slots: int, threads: int) -> tuple[Seconds, type[Shard], float]:
    """Return what one step of so many slots takes, the type of their shard, and the seconds to build it."""
    layout, slots = Layout(family.spec), np.arange(num_slots)
    rows = layout.allocate(num_slots)
    rng, start = np.random.default_rng(0), perf_counter()
    host = ShardHost([Block(lambda: family, 0, num_slots)], layout, rows, threads)
    build_s = perf_counter() - start
    (shard,) = host.shards
    try:
        tasks = family.sample_tasks(rng, num_slots, "train")

        # A shard does not know the horizon and may not be stepped beyond it: the trial's clock ends episodes.
        clock = TrialClock(rows, episodes_per_trial=1, max_episode_steps=family.config.max_episode_steps)

        def reset(reset_slots: NDArray[np.int64]) -> None:
            seeds = rng.integers(2**63, size=len(reset_slots)).astype(np.uint64)
            clock.begin(reset_slots, seeds, family.horizons(tasks[reset_slots]))
            host.reset(reset_slots, tasks[reset_slots], clock.next_episode_seeds(reset_slots))
            clock.started(reset_slots)

        def step() -> None:
            host.step(slots, uniform_actions(rng, family.spec.action_space, num_slots))
            clock.stepped(slots)
            ended = np.flatnonzero(rows.ended)
            if len(ended):
                reset(ended)

        reset(slots)
        return seconds_of(step), type(shard), build_s
    finally:
        # An environment that fails to close is not reported here: the run itself will report it.
        with suppress(Exception):
            shard.close()


def seconds_of(call: Callable[[], object]) -> Seconds:
    """Measure a call: the median of a moment of calls, or the first one if that takes longer."""
    first = _measure_once(call)
    if first.wall > MOMENT_S:
        return first
    measured, start = list[Seconds](), perf_counter()
    while not measured or perf_counter() - start < MOMENT_S:
        measured.append(_measure_once(call))
    wall, cpu = np.median(measured, axis=0).tolist()
    return Seconds(wall, cpu)


def _measure_once(call: Callable[[], object]) -> Seconds:
    wall, cpu = perf_counter(), thread_time()
    call()
    return Seconds(perf_counter() - wall, thread_time() - cpu)


def _duration_text(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"

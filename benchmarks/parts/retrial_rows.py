"""Retrial's rows of a table: every backend through the product's own wave loop, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.parts.cases import ACTING, EPISODES, HORIZON, Table
from benchmarks.parts.policy import ConstantActor, act_once
from benchmarks.parts.timed import STAMPS, TimedFamily
from buffers.replay import Replay
from envs.backends import BACKENDS
from envs.backends.auto import choose_backend
from envs.backends.base import BackendConfig
from envs.base import Rows, TaskFamily
from envs.layout import Layout
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.collection.actors import AgentActor
from policies.collection.wave import Sink, WaveInterrupted, WavePlan, WaveResult, run_wave
from utils.machine import available_cores
from utils.seeding import Phase
from utils.stopwatch import Stopwatch

# Waves are long, since at the end of a wave fewer and fewer slots have a trial left.
TRIALS_PER_SLOT = 25
WARM_UP_S = 0.3
# How often the true states are asked for.
STATES = 30
MANY_PROCESSES, MANY_THREADS = 200, 64


@dataclass(frozen=True)
class Setting:
    """One way to step the slots."""

    name: str
    backend: str
    workers: int = 1
    groups: int = 1
    threads: int | None = None
    coroutines: bool = False
    min_ready: int | None = None


def settings_of(table: Table) -> Iterator[Setting]:
    """The sensible ways to step this table's slots."""
    case, slots, cores = table.case, table.slots, available_cores()
    groups = (1, 2) if table.mode == ACTING else (1,)
    if case.mujoco and cores > 1:
        yield Setting("Retrial serial, 1 thread", "serial", threads=1)
    yield Setting(f"Retrial serial, {cores} threads" if case.mujoco else "Retrial serial", "serial")
    if slots > 1:
        for workers in table.workers:
            yield from _grouped(f"Retrial process, {workers} workers", "process", workers, groups, slots)
        if case.takes_first:
            name = f"Retrial process, {min(cores, slots)} workers, the first half that is ready"
            yield Setting(name, "process", min(cores, slots), min_ready=slots // 2)
        yield Setting(f"Retrial pipe, {min(cores, slots)} workers", "pipe", min(cores, slots))
        if slots > cores and slots <= MANY_PROCESSES:
            yield Setting(f"Retrial pipe, one process each ({slots})", "pipe", slots)
        threads = min(slots, MANY_THREADS) if case.wait_s else min(cores, slots)
        yield from _grouped(f"Retrial thread, {threads} threads", "thread", threads, groups, slots)
        if case.mujoco:
            yield Setting(f"Retrial thread, 1 x {cores} inner threads, 2 groups", "thread", 1, groups=2)
    yield Setting("Retrial auto", "auto")
    if case.coroutines is not None:
        yield Setting("Retrial serial, coroutines", "serial", coroutines=True)
        yield Setting("Retrial asyncio, coroutines", "asyncio", coroutines=True)
        yield Setting("Retrial auto, coroutines", "auto", coroutines=True)


def _grouped(name: str, backend: str, workers: int, groups: tuple[int, ...], slots: int) -> Iterator[Setting]:
    for count in groups:
        if count * workers <= slots:
            yield Setting(name if count == 1 else f"{name}, {count} groups", backend, workers, count)


class Bench:
    """One manager that runs waves, and a replay that all managers of a table share."""

    def __init__(
        self,
        table: Table,
        setting: Setting,
        agent: Agent | None,
        replay: Replay | None,
        *,
        timed: bool = False,
        config: BackendConfig | None = None,
    ) -> None:
        if setting.backend not in ("auto", *BACKENDS):
            raise ModuleNotFoundError(f"there is no backend {setting.backend!r}")
        make = table.case.coroutines if setting.coroutines and table.case.coroutines else table.case.family
        family, self.setting, self.table, self.note = make(), setting, table, ""
        config, workers = (
            config
            or BackendConfig(name=setting.backend, threads=setting.threads, min_ready=setting.min_ready),
            setting.workers,
        )
        if setting.backend == "auto":
            act = act_once(agent, family, table.slots) if agent is not None else None
            choice = choose_backend(family, config, table.slots, act=act)
            config, workers = choice.backend, choice.num_workers
            self.note = f"{choice.reason} ({choice.num_workers} workers)"
        self.backend, self.workers = config.name, workers
        self.manager = ParallelEnvManager(
            TimedFamily(family) if timed else family,
            table.slots,
            episodes_per_trial=EPISODES,
            max_episode_steps=HORIZON,
            num_workers=workers,
            num_groups=setting.groups,
            backend=config,
        )
        self._actor = ConstantActor() if agent is None else AgentActor(agent, device="cpu")
        self.replay = replay
        self._waves = 0

    def run(self, seconds: float) -> float:
        """Run for so many seconds from the first round; env-steps per second."""
        return self.watched(seconds, self.replay).rate

    def watched(
        self,
        seconds: float,
        sink: Any,
        watch: Stopwatch | None = None,
        on_round: Callable[[], None] = lambda: None,
    ) -> Span:
        """Run for so many seconds, and call `on_round` at every round; what happened."""
        span = Span()

        def tick(result: WaveResult) -> bool:
            on_round()
            return span.tick(result.env_steps) >= seconds

        while span.seconds < seconds:
            span.next_wave()
            trials = TRIALS_PER_SLOT * self.table.slots
            tasks = self.manager.sample_tasks(trials, rng=np.random.default_rng(self._waves))
            plan = WavePlan.of_tasks(0, Phase.TRAIN, self._waves * trials, tasks)
            self._waves += 1
            try:
                run_wave(self.manager, self._actor, plan, sink=sink, watch=watch, tick=tick)
            except WaveInterrupted:
                break
        return span

    def worker_mib(self) -> float:
        """MiB that its workers have of their own."""
        return sum(psutil.Process(pid).memory_full_info().uss for pid in self.manager.pids) / 2**20

    def close(self) -> None:
        """Stop its workers."""
        self.manager.close()


@dataclass
class Span:
    """Env-steps counted between two rounds, over as many waves as fit in between."""

    began: float = 0.0
    seconds: float = 0.0
    steps: int = 0
    rounds: int = 0
    _seen: int = 0

    def next_wave(self) -> None:
        """The counter starts again at 0."""
        self._seen = 0

    def tick(self, env_steps: int) -> float:
        """A round is over; the seconds since the first one."""
        now = perf_counter()
        if not self.began:
            self.began = now
        else:
            self.steps += env_steps - self._seen
            self.rounds += 1
        self._seen = env_steps
        self.seconds = now - self.began
        return self.seconds

    @property
    def rate(self) -> float:
        """Env-steps per second."""
        return self.steps / self.seconds


def make_replay(family: TaskFamily, slots: int) -> Replay:
    """Where the rows of every wave go."""
    layout, rows_per_trial = Layout(family.spec, with_flag=True), EPISODES * (HORIZON + 1)
    return Replay(
        obs_space=layout.obs_space,
        action_space=family.spec.action_space,
        capacity_rows=TRIALS_PER_SLOT * slots * rows_per_trial,
        wave_trials=TRIALS_PER_SLOT * slots,
        rows_per_trial=rows_per_trial,
    )


# -- where a round's time goes -------------------------------------------------------------------------------


@dataclass
class _Phases(Sink):
    """Takes the stamps out of the rows on their way to the replay: when environments worked on them."""

    inner: Replay | None
    stamps: list[NDArray[np.float64]] = field(default_factory=list)

    def reserve(self, n: int) -> None:
        if self.inner is not None:
            self.inner.reserve(n)

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Mapping[str, NDArray[Any]],
    ) -> None:
        self.stamps.append(rows.info[slots, -len(STAMPS) :])
        if self.inner is not None:
            self.inner.write(trials, times, rows, slots, actions, extras)

    def commit(self, lengths: NDArray[np.int64]) -> None:
        if self.inner is not None:
            self.inner.commit(lengths)

    def discard(self) -> None:
        if self.inner is not None:
            self.inner.discard()


def breakdown(
    table: Table, setting: Setting, agent: Agent | None, replay: Replay | None, seconds: float
) -> dict[str, float]:
    """Shares of a round, from a run of its own whose environments tell when they worked.

    env: what the environments would take if no core (or waiting slot) ever idled between the first one's
    begin and the last one's end; slowest: the rest of that time; hand_over: the rest of the calls to the
    backend; inference: acting; bookkeeping: all else, the replay included. With two groups only what is not
    hidden behind acting counts. Where a case has true states, state: what asking for them would take of a
    round that asks for them too; state_us: microseconds of it.
    """
    bench = Bench(table, setting, agent, replay, timed=True)
    try:
        bench.run(WARM_UP_S)
        calls = _record_calls(bench.manager)
        watch, phases, acting = Stopwatch(), _Phases(replay), list[float]()
        span = bench.watched(seconds, phases, watch, lambda: acting.append(watch.seconds.get("act", 0.0)))
        state = None if table.case.state is None else _median_s(partial(table.case.state, bench.manager.rows))
    finally:
        bench.close()
    begin, end = span.began, span.began + span.seconds
    inside = _Elapsed(calls, begin, end)
    env = slowest = 0.0
    for first, last, busy in _merged(phases.stamps, bench):
        visible, share = inside.between(first, last), min(1.0, busy / max(last - first, 1e-9))
        env += visible * share
        slowest += visible * (1.0 - share)
    total, inference = span.seconds, acting[-1] - acting[0]
    seconds_of = {
        "env": env,
        "slowest": slowest,
        "hand_over": max(0.0, inside.total - env - slowest),
        "inference": inference,
    }
    seconds_of["bookkeeping"] = max(0.0, total - sum(seconds_of.values()))
    a_round = total / span.rounds
    return {
        **{name: value / total for name, value in seconds_of.items()},
        **({} if state is None else {"state": state / (a_round + state), "state_us": 1e6 * state}),
        "round_us": 1e6 * a_round,
        "env_steps_per_s": span.rate,
    }


def _median_s(call: Callable[[], object]) -> float:
    """Seconds of a call: the median of some."""
    took = list[float]()
    for _ in range(STATES):
        start = perf_counter()
        call()
        took.append(perf_counter() - start)
    return float(np.median(took))


def _merged(rounds: list[NDArray[np.float64]], bench: Bench) -> list[tuple[float, float, float]]:
    """(begin, end, busy seconds) of the stretches in which environments worked.

    A stretch is a round, or the rounds of two groups that overlap.
    """
    found: list[tuple[float, float, float]] = []
    for first, last, busy in sorted(
        (stamps[:, 0].min(), stamps[:, 1].max(), _busy(stamps, bench)) for stamps in rounds if len(stamps)
    ):
        if found and first < found[-1][1]:
            before = found.pop()
            first, last, busy = before[0], max(before[1], last), before[2] + busy
        found.append((first, last, busy))
    return found


def _busy(stamps: NDArray[np.float64], bench: Bench) -> float:
    """Seconds that the environments needed for one round, spread evenly over what steps them."""
    _, own = np.unique(stamps[:, 0], return_index=True)  # slots that were stepped by one call have one stamp
    wall, cpu = (stamps[own, 1] - stamps[own, 0]).sum(), stamps[own, 2].sum()
    if bench.setting.coroutines:
        return wall / len(own)
    if bench.table.case.wait_s or bench.workers == 1:
        return wall / bench.workers
    return cpu / min(available_cores(), bench.workers)


def _record_calls(manager: ParallelEnvManager) -> list[tuple[float, float]]:
    """Record from now on when each call to the backend begins and ends."""
    calls: list[tuple[float, float]] = []
    backend: Any = manager._backend  # the product has no door here, since only a profile needs one

    def recorded(call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any) -> Any:
            start = perf_counter()
            try:
                return call(*args)
            finally:
                calls.append((start, perf_counter()))

        return record

    backend.post, backend.wait = recorded(backend.post), recorded(backend.wait)
    return calls


class _Elapsed:
    """How much of a stretch of time lies inside some intervals."""

    def __init__(self, intervals: list[tuple[float, float]], begin: float, end: float) -> None:
        edges = np.clip(np.array(intervals).reshape(-1, 2), begin, end)
        lengths = np.stack([np.zeros(len(edges)), edges[:, 1] - edges[:, 0]], axis=1)
        self._times = edges.reshape(-1)
        self._so_far = np.cumsum(lengths.reshape(-1))
        self.total = float(self._so_far[-1]) if len(edges) else 0.0

    def between(self, first: float, last: float) -> float:
        """Seconds of first..last that were inside."""
        return float(np.interp(last, self._times, self._so_far) - np.interp(first, self._times, self._so_far))

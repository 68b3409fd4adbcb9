"""What a fault costs: workers are killed while they step, and the clock runs until their slots have a new
row.

    python -m benchmarks.recovery           everything, and benchmarks/results/recovery.json
    python -m benchmarks.recovery --kills 10 --seconds 6 --repeats 1

recovery: from SIGKILL to the next row that the trainer gets of the killed slots after their restart, their
trial re-run in between; detection: to the moment the backend reports the fault. Throughput at one kill per
minute is not waited for: runs with a kill every few seconds take turns with runs without, which gives the
seconds of stepping that one kill costs; a sixtieth of them is lost at one kill per minute. Validation is
`ShardHost.check`: its time for the slots of one worker, as a share of a round.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import random
import signal
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.parts.cases import ACTING, CASES, ENV_ONLY, Table
from benchmarks.parts.machine import facts, write
from benchmarks.parts.policy import make_agent
from benchmarks.parts.retrial_rows import WARM_UP_S, Bench, Setting, make_replay
from benchmarks.parts.targets import Target, targets_text
from envs.backends.base import BackendConfig, Block
from envs.backends.shard_host import ShardHost
from envs.base import Rows
from envs.layout import Layout
from utils.machine import available_cores

RESULTS = Path(__file__).parent / "results" / "recovery.json"
SLOTS = 12
# Rounds from a recovery to the next kill: it comes anywhere in a trial of 400 steps.
BETWEEN_KILLS = (20, 120)
NO_BUDGET = BackendConfig(name="process", fault_budget=10**6)
CHECKS = 20_000


class _Enough(Exception):
    """All kills were made."""


@dataclass
class Killer:
    """A sink that keeps nothing: it kills a worker now and then, and notes when its slots are back."""

    bench: Bench
    chance: random.Random
    kills: int
    detection: list[float] = field(default_factory=list)
    restore: list[float] = field(default_factory=list)
    recovery: list[float] = field(default_factory=list)
    _killed: float = 0.0
    _restarts: int = 0
    _rounds_left: int = BETWEEN_KILLS[1]

    def __post_init__(self) -> None:
        backend: Any = self.bench.manager._backend
        wait, restore = backend.wait, backend.restore

        def watched_wait(*args: Any) -> Any:
            ready, faults = wait(*args)
            if faults and self._killed and len(self.detection) == len(self.recovery):
                self.detection.append(perf_counter() - self._killed)
            return ready, faults

        def watched_restore(*args: Any) -> Any:
            start = perf_counter()
            faults = restore(*args)
            self.restore.append(perf_counter() - start)
            return faults

        backend.wait, backend.restore = watched_wait, watched_restore

    def on_round(self) -> None:
        """The next steps are posted: now or never."""
        if self._killed:
            return
        if len(self.recovery) == self.kills:
            raise _Enough
        self._rounds_left -= 1
        if self._rounds_left <= 0:
            self._restarts = self.bench.manager.faults.restarts
            os.kill(self.chance.choice(self.bench.manager.pids), signal.SIGKILL)
            self._killed = perf_counter()

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Any,
    ) -> None:
        if self._killed and self.bench.manager.faults.restarts > self._restarts:
            self.recovery.append(perf_counter() - self._killed)
            self._killed, self._rounds_left = 0.0, self.chance.randint(*BETWEEN_KILLS)

    def reserve(self, n: int) -> None: ...

    def commit(self, lengths: NDArray[np.int64]) -> None: ...

    def discard(self) -> None: ...


def opened(case: str, mode: str, slots: int = SLOTS) -> Bench:
    """Worker processes, one per core, that may be killed any number of times."""
    agent = make_agent(CASES[case].family()) if mode == ACTING else None
    replay = make_replay(CASES[case].family(), slots) if agent is not None else None
    workers = min(available_cores(), slots)
    return Bench(
        Table(CASES[case], mode, slots),
        Setting("process", "process", workers),
        agent,
        replay,
        config=NO_BUDGET,
    )


def kill_times(case: str, mode: str, kills: int) -> dict[str, Any]:
    """Milliseconds from a kill to its detection, to the new process, and to the next row."""
    bench = opened(case, mode)
    try:
        bench.run(WARM_UP_S)
        killer = Killer(bench, random.Random(0), kills)
        with contextlib.suppress(_Enough):
            bench.watched(math.inf, killer, on_round=killer.on_round)
    finally:
        bench.close()
    parts = {"detection": killer.detection, "restore": killer.restore, "recovery": killer.recovery}
    return {
        name: {"median_ms": _ms(statistics.median(values)), "p95_ms": _ms(np.quantile(values, 0.95))}
        for name, values in parts.items()
    }


def _ms(seconds: Any) -> float:
    return round(1000.0 * float(seconds), 2)


def kill_cost(seconds: float, every: float, repeats: int) -> dict[str, Any]:
    """AntDir with the policy acting: what one kill costs in seconds of stepping, and in throughput at one
    kill per minute.
    """
    bench, chance = opened("ant", ACTING), random.Random(0)
    calm, troubled, kills = list[float](), list[float](), 0
    try:
        bench.run(WARM_UP_S)
        for _ in range(repeats):
            calm.append(bench.run(seconds))
            due = [perf_counter() + every / 2]

            def trouble(due: list[float] = due) -> None:
                nonlocal kills
                if perf_counter() >= due[0]:
                    os.kill(chance.choice(bench.manager.pids), signal.SIGKILL)
                    kills, due[0] = kills + 1, due[0] + every

            troubled.append(bench.watched(seconds, bench.replay, on_round=trouble).rate)
    finally:
        bench.close()
    lost = [seconds * (1.0 - bad / good) for good, bad in zip(calm, troubled, strict=True)]
    cost = sum(lost) / kills
    return {
        "calm_env_steps_per_s": statistics.median(calm),
        "with_kills_env_steps_per_s": statistics.median(troubled),
        "a_kill_every_s": every,
        "kills": kills,
        "lost_s_per_kill": cost,
        "loss_at_one_per_minute": cost / 60.0,
        "lost_s_of_each_run": lost,
    }


def validation(case: str, mode: str, slots: int, seconds: float) -> dict[str, Any]:
    """The time of one look at the rows of a worker, and its share of a round."""
    family, workers = CASES[case].family(), min(available_cores(), slots)
    own = slots // workers
    layout = Layout(family.spec, with_flag=True)
    host = ShardHost([Block(CASES[case].family, 0, own)], layout, layout.allocate(own))
    try:
        everyone, start = np.arange(own), perf_counter()
        for _ in range(CHECKS):
            host.check(everyone)
        check = (perf_counter() - start) / CHECKS
    finally:
        host.close()
    bench = opened(case, mode, slots)
    try:
        bench.run(WARM_UP_S)
        span = bench.watched(seconds, bench.replay)
    finally:
        bench.close()
    a_round = span.seconds / span.rounds
    return {
        "case": f"{case}/{mode}/{slots}",
        "check_us": 1e6 * check,
        "round_us": 1e6 * a_round,
        "share": check / a_round,
    }


def recovery_targets(found: dict[str, Any]) -> list[Target]:
    """What a fault may cost at most, and what it cost."""
    light, ant = found["kills"]["toy"], found["kills"]["ant"]
    lost = 100.0 * found["one_kill_per_minute"]["loss_at_one_per_minute"]
    costs = [
        ("light environment: recovery, median", 100.0, light["recovery"]["median_ms"], "ms"),
        ("light environment: detection, median", 50.0, light["detection"]["median_ms"], "ms"),
        ("AntDir: detection, median", 50.0, ant["detection"]["median_ms"], "ms"),
        ("AntDir, one kill per minute: throughput lost", 2.0, lost, "%"),
    ]
    costs += [
        (f"validation, {one['case']}: share of a round", 2.0, 100.0 * one["share"], "%")
        for one in found["validation"]
    ]
    return [Target(name, most, reached, unit, at_most=True) for name, most, reached, unit in costs]


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="of each run with kills, and of each run without"
    )
    parser.add_argument("--every", type=float, default=2.5, help="seconds between two kills in those runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("envs.manager.recovery").setLevel(logging.ERROR)  # each kill would be reported
    print(facts()["text"])
    print(
        f"About {(2 * options.repeats * options.seconds + 1.2 * options.kills + 20) / 60:.0f} minutes.",
        flush=True,
    )
    found: dict[str, Any] = {"machine": facts(), "kills": {}}
    for case, mode in (("toy", ENV_ONLY), ("ant", ACTING)):
        found["kills"][case] = times = kill_times(case, mode, options.kills)
        text = ", ".join(
            f"{part} {value['median_ms']:.1f} ms (p95 {value['p95_ms']:.1f})" for part, value in times.items()
        )
        print(
            f"{CASES[case].title}, {options.kills} kills, {SLOTS} slots, {available_cores()} workers: {text}",
            flush=True,
        )
    found["one_kill_per_minute"] = cost = kill_cost(options.seconds, options.every, options.repeats)
    print(
        f"AntDir: {cost['kills']} kills, each costs {cost['lost_s_per_kill']:.2f} s of stepping", flush=True
    )
    found["validation"] = [
        validation(*one, 2.0)
        for one in (("ant", ACTING, 12), ("ant", ACTING, 64), ("toy", ACTING, 12), ("toy", ENV_ONLY, 200))
    ]
    targets = recovery_targets(found)
    print(targets_text(targets))
    found["targets"] = [target.as_json() for target in targets]
    write(options.output, found)


if __name__ == "__main__":
    main()

"""backend=auto: what it picks for which costs, and that it changes nothing but who steps."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.backends import auto
from envs.backends.auto import (
    BackendChoice,
    Seconds,
    StepCosts,
    choice_from_costs,
    choose_backend,
    costs_of,
    seconds_of,
    with_threads,
)
from envs.backends.base import BackendConfig
from envs.base import Shard, TaskFamily
from envs.meta import FAMILIES
from policies.learner import Learner
from tests.runs import tiny_config
from tests.toys import CountingConfig, CountingFamily, CountingShard
from tests.toys_async import WaitingFamily
from tests.toys_faulty import FaultyFamily
from utils.machine import available_cores

CORES = available_cores()
SLOTS = 12


def decided(
    wall: float,
    cpu: float | None = None,
    threaded: float | None = None,
    *,
    act: float = 0.0,
    workers: int | None = None,
    **how: bool,
) -> BackendChoice:
    cpu, threaded = wall if cpu is None else cpu, wall if threaded is None else threaded
    return choice_from_costs(
        StepCosts(wall, cpu, threaded, **how),
        BackendConfig(threads=3),
        SLOTS,
        num_workers=workers,
        num_groups=1,
        act=act,
    )


@pytest.mark.skipif(CORES < 2, reason="one core has nothing to share out")
def test_each_kind_of_cost_has_its_backend() -> None:
    for choice, expected in (
        (decided(20e-6), ("serial", 1)),
        (decided(1.6e-3, threaded=1.6e-3 / CORES), ("serial", 1)),
        (decided(60e-3), ("process", min(CORES, SLOTS))),
        (decided(120e-3, cpu=1e-3), ("thread", SLOTS)),
        (decided(120e-3, cpu=1e-3, waits_in_coroutines=True), ("asyncio", 1)),
        (decided(20e-6, workers=6), ("process", 6)),
        (decided(60e-3, workers=1), ("serial", 1)),
        (decided(120e-3, cpu=1e-3, workers=4), ("thread", 4)),
    ):
        assert (choice.backend.name, choice.num_workers) == expected
        assert choice.reason.startswith(f"backend=auto: {expected[0]}, since ")


def test_first_ready_is_never_given_to_a_backend_that_cannot_have_it() -> None:
    choice = choice_from_costs(
        StepCosts(1e-5, 1e-5, 1e-5),
        BackendConfig(min_ready=2),
        SLOTS,
        num_workers=None,
        num_groups=1,
        act=0.0,
    )
    assert choice.backend.name == "process" and choice.backend.min_ready == 2


def test_every_other_setting_stays_as_it_was_given() -> None:
    given = BackendConfig(call_timeout_s=7.0, fault_budget=3)
    chosen = choose_backend(CountingFamily(), given, SLOTS).backend
    assert (chosen.call_timeout_s, chosen.fault_budget) == (7.0, 3) and chosen.name != "auto"


def test_a_named_backend_is_not_measured() -> None:
    class Unbuildable(CountingFamily):
        def make_shard(self, num_slots: int, threads: int = 1) -> Any:
            raise AssertionError("nobody asked")

    for name, workers, expected in (
        ("serial", None, 1),
        ("process", None, min(CORES, SLOTS)),
        ("pipe", 5, 5),
        ("thread", 4, 4),
        ("asyncio", None, 1),
    ):
        assert choose_backend(
            Unbuildable(), BackendConfig(name=name), SLOTS, num_workers=workers
        ) == BackendChoice(BackendConfig(name=name), expected, "")


# -- measuring -----------------------------------------------------------------------------------------------


class BusyShard(CountingShard):
    """Computes for a while in every slot, one after the other; says in files which shards there were."""

    def __init__(self, num_slots: int, config: CountingConfig, folder: str) -> None:
        super().__init__(num_slots, config)
        self._file = Path(folder) / f"{time.monotonic_ns()}-{num_slots}-{os.getpid()}"
        self._file.touch()

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        start = time.thread_time()
        while time.thread_time() - start < 0.004 * len(slots):
            pass
        super().step(slots, actions)


class BusyFamily(CountingFamily):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = str(folder)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return BusyShard(num_slots, self.config, self.folder)


class RootlessFamily(CountingFamily):
    """It holds what no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class EndlessFamily(CountingFamily):
    """It never gets to where it is sent."""

    def __reduce__(self) -> Any:
        return time.sleep, (1e6,)


@pytest.mark.skipif(CORES < 2, reason="one core has nothing to share out")
def test_slow_environments_get_helpers_and_no_more_than_four_slots_are_built_elsewhere(
    tmp_path: Path,
) -> None:
    choice = choose_backend(BusyFamily(tmp_path), BackendConfig(), 64)
    # Where other programs take most of the cores, computing looks like waiting: which of the two helps is
    # tested with given costs.
    assert (choice.backend.name, choice.num_workers) in (("process", CORES), ("thread", 64))
    built = [tuple(map(int, file.name.split("-")[1:])) for file in sorted(tmp_path.iterdir())]
    whole = [
        1,
        4,
        4,
    ]  # alone, a few, and (what waits has no use for them) the few with the family's own threads
    assert [slots for slots, _ in built] in (
        [whole] if choice.backend.name == "process" else [whole[:2], whole]
    )
    (pid,) = {pid for _, pid in built}
    assert pid != os.getpid() and not psutil.pid_exists(pid)


def test_waiting_is_told_from_computing() -> None:
    choice = choose_backend(WaitingFamily(0.05), BackendConfig(), 100)
    assert (choice.backend.name, choice.num_workers) == ("thread", 64)
    assert choose_backend(WaitingFamily(0.02, coroutines=True), BackendConfig(), 64).backend.name == "asyncio"


def test_what_many_slots_cost_is_extrapolated_from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepping(kind: type[Shard], first: float, each: float) -> Any:
        def told(family: TaskFamily, num_slots: int, threads: int) -> tuple[Seconds, type[Shard], float]:
            assert num_slots <= auto.FEW
            seconds = (first + each * (num_slots - 1)) / threads
            return Seconds(seconds, 0.9 * seconds), kind, 0.0

        return told

    for slots in (1, 3, 4, 64):
        monkeypatch.setattr(auto, "_measure_steps", stepping(Shard, 0.010, 0.002))
        costs = costs_of(CountingFamily(), slots, 1)
        assert costs.wall == pytest.approx(0.010 + 0.002 * (slots - 1)) and costs.cpu == pytest.approx(
            0.9 * costs.wall
        )
        assert costs.threaded == costs.wall
    monkeypatch.setattr(auto, "_measure_steps", stepping(AsyncShard, 0.010, 0.0))
    assert costs_of(CountingFamily(), 64, 1) == StepCosts(0.010, 0.9 * 0.010, 0.010, True)


def test_what_many_threads_would_do_follows_from_what_a_few_do() -> None:
    assert with_threads(0.3, 4, 4) == 0.3
    assert with_threads(0.25, 4, 16) == pytest.approx(1 / 16) and with_threads(0.2, 4, 16) == pytest.approx(
        1 / 16
    )
    assert with_threads(0.625, 4, 16) == pytest.approx(0.5 + 0.5 / 16), "half of it is shared out"
    assert with_threads(1.1, 4, 16) == 1.0


def test_one_slot_that_is_slow_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SLOW_S", 0.001)
    asked: list[int] = []

    class Slow(WaitingFamily):
        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            asked.append(num_slots)
            return super().make_shard(num_slots, threads)

    alone = costs_of(Slow(0.004), 64, 1).wall
    assert alone > 20 * costs_of(Slow(0.004, coroutines=True), 64, 1).wall, "coroutines wait together"
    assert asked == [1, 1]


def test_a_first_call_that_is_longer_than_the_moment_is_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[None] = []
    seconds_of(lambda: calls.append(None))
    assert len(calls) > 1
    monkeypatch.setattr(auto, "MOMENT_S", 0.0)
    del calls[:]
    seconds_of(lambda: calls.append(None))
    assert len(calls) == 1


# -- what goes wrong meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "where", "said"),
    [
        ("raise", "step", "measuring it failed (ValueError: the toy is broken)"),
        ("raise", "make_shard", "measuring it failed (ValueError: the toy is broken)"),
        ("slot_error", "reset", "measuring it failed (SlotError: the toy is broken)"),
        ("nan_reward", "step", "measuring it failed (SlotError: the reward is not finite"),
        ("exit", "step", "measuring it failed (its worker process exited with code 3)"),
        (
            "kill",
            "step",
            "measuring it failed (its worker process was killed by signal 9 (SIGKILL; out of memory?))",
        ),
    ],
)
def test_what_fails_while_it_is_measured_gets_worker_processes(
    fault: str, where: str, said: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for given, expected in ((None, min(CORES, SLOTS)), (1, 1)):
        choice = choose_backend(
            FaultyFamily(fault=fault, where=where), BackendConfig(), SLOTS, num_workers=given
        )
        assert (choice.backend.name, choice.num_workers) == ("process", expected)
        assert choice.reason.startswith(f"backend=auto: process, since {said}") and choice.reason.endswith(
            "): worker processes contain faults"
        )
    assert capfd.readouterr() == ("", "") and not caplog.records


@pytest.mark.parametrize("fault", ["hold_gil", "stop"])
def test_what_hangs_while_it_is_measured_gets_worker_processes_at_the_deadline(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "DEADLINE_S", 2.0)
    start = time.monotonic()
    choice = choose_backend(FaultyFamily(fault=fault), BackendConfig(), SLOTS)
    assert time.monotonic() - start < 30.0
    assert (
        choice.reason
        == "backend=auto: process, since measuring it took more than 2 s: worker processes contain faults"
    )


def test_the_deadline_is_no_longer_than_the_time_given_to_build_and_to_step() -> None:
    for family in (FaultyFamily(fault="sleep"), EndlessFamily()):
        choice = choose_backend(family, BackendConfig(construct_timeout_s=1.0, call_timeout_s=0.5), SLOTS)
        assert choice.backend.name == "process" and "measuring it took more than 1.5 s" in choice.reason


def test_an_environment_that_only_fails_to_close_is_measured_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert choose_backend(FaultyFamily(where="close"), BackendConfig(), SLOTS).backend.name == "serial"
    assert capfd.readouterr() == ("", "")


def test_a_run_whose_environment_dies_while_it_is_measured_goes_on_in_worker_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "Faulty", FaultyFamily)
    config = tiny_config(
        "Faulty",
        env={"fault": "kill", "times": 2, "folder": str(tmp_path)},
        backend=BackendConfig(name="auto"),
    )
    with Learner(config) as learner:
        assert "SIGKILL" in learner.backend.reason
        learner.train()
        assert learner.counters.env_steps >= 240
    assert len(list(tmp_path.iterdir())) == 2, (
        "the second time was in the run, which built the environment anew"
    )


def test_environments_that_cannot_be_sent_are_stepped_here_unless_workers_were_asked_for() -> None:
    choice = choose_backend(RootlessFamily(), BackendConfig(), SLOTS)
    assert (choice.backend.name, choice.num_workers) == ("serial", 1)
    assert choice.reason.startswith(
        "backend=auto: serial, since it could not be measured in a worker: The environments cannot be sent "
    )
    assert "family.lock" in choice.reason and "cannot be pickled" in choice.reason
    for choice in (
        choose_backend(RootlessFamily(), BackendConfig(), SLOTS, num_workers=3),
        choose_backend(RootlessFamily(), BackendConfig(min_ready=2), SLOTS),
    ):
        assert choice.backend.name == "process", "which then says why it cannot be"


def test_where_no_process_can_be_started_the_environments_are_stepped_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(multiprocessing.current_process())["_config"], "daemon", True)
    choice = choose_backend(CountingFamily(), BackendConfig(), SLOTS)
    assert choice.backend.name == "serial" and "This is a daemonic child process" in choice.reason


def test_the_threads_of_a_thread_backend_are_one_per_core_if_nothing_is_known() -> None:
    config = BackendConfig(name="thread")
    assert choose_backend(WaitingFamily(0.01), config, SLOTS).num_workers == SLOTS
    assert choose_backend(FaultyFamily(), config, SLOTS) == BackendChoice(config, min(CORES, SLOTS), "")


class TableShard(CountingShard):
    """A shard with a table of what happens in each step of an episode, and nothing beyond its horizon."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        table = np.zeros(self._config.max_episode_steps)
        super().step(slots, actions)
        self.rows.reward[slots] += table[self.time[slots] - 1]


class TableFamily(CountingFamily):
    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return TableShard(num_slots, self.config)


def test_no_slot_is_measured_beyond_the_horizon() -> None:
    """Only the trial's clock knows where an episode ends: measuring without it raised an IndexError."""
    costs = costs_of(TableFamily(CountingConfig(max_episode_steps=5)), SLOTS, 1)
    assert 0 < costs.wall < 1

"""Rows A of the fault list (test_faults.py): what the code of an environment can do wrong, and what becomes
of it under each policy.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import envs.manager.limits
import envs.manager.recovery
from envs.backends.base import OnFault
from envs.base import Shard
from envs.meta.third_party.gymnasium_family import GymnasiumFamily
from envs.parallel_env_manager import EnvCrashLoopError, WorkerError
from tests.faults import (
    FAULT_FREE,
    TRIALS,
    check_run,
    fault_free,
    fault_free_streams,
    faulty,
    happened,
    manage,
    played,
)
from tests.streams import trial_streams
from tests.toys import CountingConfig, CountingFamily, CountingShard
from tests.toys_gym import Altered, CountingEnv
from utils.machine import resident_bytes

PLACE = r"slot \d \(task \[0\.\d+, 0\.\d+\], trial seed \d+, (step \d of episode \d|reset of episode \d)\)"


class Case(NamedTuple):
    """A fault, where it strikes, what is said of it, and whether there is a traceback to show."""

    row: str
    fault: str
    said: str
    where: str = "step"
    traced: bool = True

    def __str__(self) -> str:
        return f"{self.row}-{self.fault}-{self.where}"


DIED = "was lost: its worker process"
CASES = [
    Case("A1", "raise", "raised ValueError: the toy is broken"),
    Case("A1", "slot_error", "raised SlotError: the toy is broken"),
    Case("A2", "raise", "raised ValueError: the toy is broken", "reset"),
    Case("A6", "unpicklable", "raised UnpicklableError: cannot be sent"),
    Case("A6", "speechless", "raised SpeechlessError: <exception str() failed>"),
    Case("A6", "huge", "raised ValueError: xxxxxxxx"),
    Case("A7", "exit", f"{DIED} exited with code 3", traced=False),
    Case("A7", "exit_0", f"{DIED} exited with code 0", traced=False),
    Case("A7", "sys_exit", f"{DIED} exited with code 4", traced=False),
    Case("A7", "abort", f"{DIED} was killed by signal 6 (SIGABRT)", traced=False),
    Case("A8", "nan_obs", "raised SlotError: the observation is not finite", traced=False),
    Case("A8", "inf_obs", "raised SlotError: the observation is not finite", "reset", traced=False),
    Case("A8", "nan_reward", "raised SlotError: the reward is not finite (in float32): nan", traced=False),
    Case("A11", "close_pipes", f"{DIED} ", traced=False),
    Case("A11", "close_all", f"{DIED} ", traced=False),
    Case("A11", "write_everywhere", f"{DIED} ", traced=False),
    Case("A16", "exec", f"{DIED} ", traced=False),
    Case("A17", "interrupt", "raised KeyboardInterrupt: the end"),
    Case("A17", "generator_exit", "raised GeneratorExit: the end"),
    Case("A17", "cancelled", "raised CancelledError: the end"),
    Case("A11", "garbage", "was lost: its worker process wrote something that is no answer", traced=False),
]


def check_text(text: str, case: Case) -> None:
    """The message says which slot did what, what went wrong, and where in the code, in bounded length."""
    assert case.said in text and re.search(PLACE, text)
    assert ("in go_wrong" in text) == case.traced
    assert len(text) < 100_000


@pytest.mark.parametrize("case", CASES, ids=str)
def test_restart_gives_the_data_of_a_run_without_the_fault(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with manage(faulty(tmp_path, case.fault, where=case.where)) as manager:
        before = manager.pids
        assert played(manager) == fault_free()
        assert len(set(manager.pids) - set(before)) == 1, "the other worker was left alone"
        assert 1 <= manager.faults.restarts <= 3 and not manager.faults.dropped
    assert happened(tmp_path) == 1
    (record,) = [record for record in caplog.records if record.name == envs.manager.recovery.__name__]
    check_text(record.message, case)
    assert re.search(r"Built anew in \d+ ms\.$", record.message)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_raise_stops_at_once_with_one_named_error(case: Case, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, case.fault, where=case.where), on_fault=OnFault["raise"]) as manager:
        check_text(check_run(manager, OnFault["raise"]), case)
    assert happened(tmp_path) == 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_drop_gives_up_the_trials_of_the_fault_and_no_other(case: Case, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, case.fault, where=case.where), on_fault=OnFault.drop) as manager:
        check_run(manager, OnFault.drop)
        assert sum(manager.faults.dropped.values()) <= 3 and happened(tmp_path) == 1, (
            "no more than shared the worker"
        )


def test_what_is_dropped_may_be_started_again(tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "exit", at=1), on_fault=OnFault.drop) as manager:
        tasks, seeds = np.full((5, 2), 0.5), list(range(5))
        manager.reset(tasks, seeds)
        rows = manager.step(np.zeros((5, 2), np.float32))
        gone = np.flatnonzero(manager.dropped)
        assert (
            len(gone) in (2, 3)
            and rows.valid.tolist() == (~manager.dropped).tolist() == manager.running.tolist()
        )
        manager.reset(tasks[gone], seeds[: len(gone)], gone.tolist())
        assert not manager.dropped.any() and manager.running.all()


# -- A3, A4: again and again, or only when built anew --------------------------------------------------------


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("fault", ["raise", "exit"])
def test_a_fault_at_every_attempt_ends_in_a_crash_loop_error_after_three(
    fault: str, where: str, tmp_path: Path
) -> None:
    with manage(faulty(tmp_path, fault, times=100, where=where), workers=1) as manager:
        with pytest.raises(
            EnvCrashLoopError, match=r"It failed 3 times at this place: restarting it does not help\."
        ):
            played(manager)
        assert happened(tmp_path) == 3 and manager.pids == []


def test_what_cannot_be_built_anew_at_first_is_tried_once_more(tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "exit", again="raise")) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == happened(tmp_path, "again") == 1


@pytest.mark.parametrize("policy", list(OnFault))
def test_what_can_never_be_built_anew_ends_in_one_error_and_nothing_runs_on(
    policy: OnFault, tmp_path: Path
) -> None:
    said, kind = (
        ("the toy is broken", EnvCrashLoopError)
        if policy is not OnFault["raise"]
        else ("exited with code 3", WorkerError)
    )
    with manage(faulty(tmp_path, "exit", again="raise", again_times=100), on_fault=policy) as manager:
        with pytest.raises(kind, match=said):
            played(manager)
        assert manager.pids == [] and happened(tmp_path, "again") <= 2


def test_an_error_that_is_no_exception_is_named_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with manage(faulty(tmp_path, "final")) as manager:
        assert played(manager) == fault_free()
    assert "raised FinalError: the end" in caplog.text


# -- A8 to A10, A14: third-party environments (the whole list: ../interop/test_gymnasium_shard.py) -----------


BAD: dict[str, Any] = {
    "NaN": lambda result: (result[0] * np.nan, *result[1:]),
    "None": lambda result: (None, *result[1:]),
    "broadcastable": lambda result: (result[0][:1], *result[1:]),
    "float for a flag": lambda result: (*result[:2], 0.5, *result[3:]),
    "old interface": lambda result: result[:4],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_of_a_third_party_environment_is_stepped_again_and_never_seen(
    name: str, tmp_path: Path
) -> None:
    bad, folder = BAD[name], str(tmp_path)

    def change(result: Any) -> Any:
        from tests.toys_faulty import one_more

        return bad(result) if result[4].get("t") == 3 and one_more(folder, "failure", 2) else result

    streams = []
    for make in (lambda: CountingEnv(5), lambda: Altered(CountingEnv(5), change)):
        family = GymnasiumFamily.from_factory(make, info_names=["t"], max_episode_steps=9)
        with manage(family) as manager:
            streams.append(trial_streams(manager, TRIALS))
            assert manager.faults.restarts == happened(tmp_path)
    assert streams[0] == streams[1] and happened(tmp_path) == 2


# -- A12, A15 ----------------------------------------------------------


class RudeShard(CountingShard):
    """Changes whatever its process has only one of."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        super().step(slots, actions)
        os.chdir("/")
        os.environ.clear()
        np.random.seed(0)
        socket.setdefaulttimeout(1.0)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        logging.disable()


class RudeFamily(CountingFamily):
    """Counts without manners."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return RudeShard(num_slots, self.config)


def surroundings() -> list[Any]:
    state: Any = np.random.get_state()
    return [
        os.getcwd(),
        dict(os.environ),
        state[1].tolist(),
        state[2:],
        socket.getdefaulttimeout(),
        signal.getsignal(signal.SIGUSR2),
        logging.root.manager.disable,
    ]


@pytest.mark.parametrize("name", ["process", "pipe"])
def test_what_an_environment_does_to_its_process_reaches_nobody_else(name: str) -> None:
    before = surroundings()
    with manage(RudeFamily(CountingConfig(max_episode_steps=6)), name) as manager:
        assert played(manager) == fault_free()
    assert surroundings() == before


class LeakingShard(CountingShard):
    """Takes a megabyte more at every start of an episode."""

    def __init__(self, num_slots: int, config: CountingConfig) -> None:
        super().__init__(num_slots, config)
        self._leak: list[NDArray[np.float64]] = []

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        super().reset(slots, tasks, seeds)
        self._leak += [np.ones(2**17) for _ in slots]


class LeakingFamily(CountingFamily):
    """Counts and leaks."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return LeakingShard(num_slots, self.config)


LEAKING = LeakingFamily(CountingConfig(max_episode_steps=6))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Megabytes that are just enough for a worker with a few episodes; looked at in every round."""
    monkeypatch.setattr(envs.manager.limits, "MEMORY_CHECK_S", 0.0)
    with manage(LEAKING) as manager:
        return round(max(resident_bytes([pid]) for pid in manager.pids) / 1e6) + 13


@pytest.mark.parametrize("policy", [OnFault.restart, OnFault["raise"]])
@pytest.mark.parametrize("name", ["process", "pipe"])
def test_a_worker_that_leaks_is_built_anew_before_it_is_too_large(
    name: str, policy: OnFault, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    largest = 0
    with manage(LEAKING, name, max_worker_memory=room, on_fault=policy, fault_budget=0) as manager:

        def look(*_: Any) -> None:
            nonlocal largest
            largest = max(largest, *(resident_bytes([pid]) for pid in manager.pids))

        found = trial_streams(manager, TRIALS, tamper=look)
        recycled = manager.faults.recycled
        assert recycled >= 1 and manager.faults.restarts == 0 and not manager.faults.dropped
    assert found == fault_free_streams()
    assert largest < 1e6 * (room + 6), "one round more than the limit"
    told = [
        record.message
        for record in caplog.records
        if f"MB, and backend.max_worker_memory={room} is its limit.\nBuilt anew in" in record.message
    ]
    assert len(told) == recycled


def test_without_a_limit_the_same_environments_grow_on(room: int) -> None:
    with manage(LEAKING) as manager:
        assert played(manager) == fault_free()
        assert (
            max(resident_bytes([pid]) for pid in manager.pids) > 1e6 * room and manager.faults.recycled == 0
        )


def test_a_limit_below_a_new_worker_is_an_error_instead_of_an_endless_loop() -> None:
    with (
        manage(FAULT_FREE, max_worker_memory=5) as manager,
        pytest.raises(WorkerError, match="It has only just been built anew"),
    ):
        played(manager)


def test_a_fault_while_a_worker_is_recycled_is_a_fault_like_any_other(
    room: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Fragile(LeakingFamily):
        """Fails once when it is built anew."""

        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            if (tmp_path / "armed").exists():
                (tmp_path / "armed").unlink()
                raise ValueError("not now")
            return super().make_shard(num_slots, threads)

    with manage(Fragile(LEAKING.config), max_worker_memory=room) as manager:
        (tmp_path / "armed").touch()
        assert played(manager) == fault_free()
        assert manager.faults.recycled >= 1 and manager.faults.restarts >= 1
    assert "raised ValueError: not now" in caplog.text

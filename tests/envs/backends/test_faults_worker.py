"""Rows B of the fault list (test_faults.py): worker processes that die, hang, come late or cannot be started,
and a trainer that errs.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends.base import BackendError, OnFault, StartMethod
from envs.base import Rows, Shard
from envs.parallel_env_manager import ParallelEnvManager
from tests.envs.backends.troubles import DoingFamily
from tests.faults import (
    DEADLINE_S,
    FAULT_FREE,
    SLOTS,
    TRIALS,
    check_run,
    fault_free,
    faulty,
    happened,
    manage,
    played,
)
from tests.streams import Tamper, stream_hash
from tests.toys import CountingFamily

STILL = np.zeros((SLOTS, 2), np.float32)
# Both ways in which rows travel from a worker.
MESSAGES = ["process", "pipe"]


def at(places: dict[tuple[int, int], int], do: Callable[[int], object]) -> Tamper:
    """Do something with a number at these (trial, row)."""

    def tamper(trial: int, row: int, rows: Rows, action: NDArray[np.float32]) -> None:
        if (trial, row) in places:
            do(places[trial, row])

    return tamper


# -- B1, B2: death at any time -------------------------------------------------------------------------------


DEATHS = [
    ("kill", "step", r"killed by signal 9 \(SIGKILL; out of memory\?\)"),
    ("kill", "reset", r"killed by signal 9 \(SIGKILL; out of memory\?\)"),
    ("half", "step", "exited with code 6"),
    ("half", "reset", "exited with code 6"),
    ("segv", "step", r"killed by signal 11 \(SIGSEGV\)"),
    ("bus", "step", r"killed by signal 7 \(SIGBUS\)"),
    ("abort", "step", r"killed by signal 6 \(SIGABRT\)"),
]


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize(("fault", "where", "said"), DEATHS)
def test_a_worker_that_dies_while_it_works_is_replaced(
    name: str, fault: str, where: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with manage(faulty(tmp_path, fault, times=2, where=where), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 2
    assert re.search(f"was lost: its worker process (was )?{said}", caplog.text)


@pytest.mark.parametrize("policy", [OnFault["raise"], OnFault.drop])
@pytest.mark.parametrize("fault", ["kill", "half", "segv"])
def test_a_worker_that_dies_ends_the_run_or_its_trials(fault: str, policy: OnFault, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, fault), on_fault=policy) as manager:
        text = check_run(manager, policy)
    assert ("was lost: its worker process" in text) == (policy is OnFault["raise"])


@pytest.mark.parametrize("name", MESSAGES)
def test_a_worker_that_is_killed_while_idle_is_replaced(name: str) -> None:
    with manage(FAULT_FREE, name) as manager:
        kill = at(
            {(0, 2): 0, (4, 1): 1, (7, 3): 0}, lambda worker: os.kill(manager.pids[worker], signal.SIGKILL)
        )
        assert stream_hash(manager, TRIALS, tamper=kill) == fault_free()
        assert manager.faults.restarts >= 3


@pytest.mark.parametrize("again", ["kill", "half", "exit_0"])
def test_a_worker_that_dies_while_it_is_being_replaced_is_replaced(again: str, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "kill", again=again)) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == happened(tmp_path, "again") == 1


def test_a_worker_that_dies_while_its_trials_are_re_run_is_replaced(tmp_path: Path) -> None:
    """The second death comes at a step that the trial has seen before."""
    with manage(faulty(tmp_path, "kill", times=1, at=4, again="")) as manager:
        first = manager._stepper.recovery._replay

        def replay(slots: NDArray[np.int64]) -> Any:
            if not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(manager.pids[0 if 0 in slots else 1], signal.SIGKILL)
            return first(slots)

        manager._stepper.recovery._replay = replay
        assert played(manager) == fault_free()
        assert (tmp_path / "killed").exists() and manager.faults.restarts >= 3


# -- B3: several at once -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MESSAGES)
def test_all_workers_that_die_in_one_step_are_replaced(name: str, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "kill", times=5, at=1), name, workers=5) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 5


class Killer:
    """Kills workers beside the trainer, each after a delay of its own, so that deaths come in any phase:
    idle, stepping, answering, starting.
    """

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.killed = 0

    def strike(self, pid: int, delay: float) -> None:
        with suppress(ProcessLookupError):  # it has just died
            self.threads.append(threading.Thread(target=self._kill, args=(os.pidfd_open(pid), delay)))
            self.threads[-1].start()

    def _kill(self, watched: int, delay: float) -> None:
        time.sleep(delay)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched, signal.SIGKILL)  # the number alone may be another's by then
            self.killed += 1
        os.close(watched)


@pytest.mark.parametrize("name", MESSAGES)
def test_neighbours_that_die_at_random_moments_are_replaced(name: str) -> None:
    """Thirty times, all of them, each with another delay of up to two milliseconds."""
    rng, bursts, killer = np.random.default_rng(0), list(range(30)), Killer()

    def burst(*_: object) -> None:
        if bursts and rng.random() < 0.25:
            bursts.pop()
            for thread in killer.threads:  # late blows of several bursts would add up to a crash loop
                thread.join()
            for pid in manager.pids:
                killer.strike(pid, rng.uniform(0, 0.002))

    with manage(FAULT_FREE, name, workers=3, fault_budget=1000) as manager:
        assert stream_hash(manager, TRIALS, tamper=burst) == fault_free()
        restarts = manager.faults.restarts
    for thread in killer.threads:
        thread.join()
    assert not bursts and killer.killed >= 30 and restarts >= 30, "one of each burst, however late the blows"


# -- B4, B5, B6: hanging, late, and back from the dead -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("process", "sleep"),
        ("process", "busy"),
        ("process", "hold_gil"),
        ("process", "stop"),
        ("pipe", "sleep"),
    ],
)
def test_a_worker_that_hangs_is_ended_at_the_deadline_and_replaced(
    name: str, fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers ignore SIGTERM, so that it takes a SIGKILL is shown here too."""
    with manage(faulty(tmp_path, fault), name, call_timeout_s=DEADLINE_S) as manager:
        started, old = time.monotonic(), manager.pids
        assert played(manager) == fault_free()
        assert time.monotonic() - started < DEADLINE_S + 30.0
        assert not any(Path(f"/proc/{pid}").exists() for pid in set(old) - set(manager.pids)) and set(
            old
        ) != set(manager.pids)
    assert f"gave no answer within {DEADLINE_S} s" in caplog.text
    assert ("It was stopped here" in caplog.text and "in go_wrong" in caplog.text) == (fault != "stop")


@pytest.mark.parametrize("policy", [OnFault["raise"], OnFault.drop])
def test_a_worker_that_hangs_ends_the_run_or_its_trials(policy: OnFault, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "hold_gil"), on_fault=policy, call_timeout_s=DEADLINE_S) as manager:
        text = check_run(manager, policy)
    assert ("gave no answer within" in text) == (policy is OnFault["raise"])


@pytest.mark.parametrize("name", MESSAGES)
def test_an_answer_after_the_deadline_is_never_taken_for_another(name: str, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "late", times=2), name, call_timeout_s=DEADLINE_S) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 2 and manager.faults.restarts >= 2


def test_a_worker_that_was_stopped_cannot_come_back_as_a_ghost(tmp_path: Path) -> None:
    with manage(FAULT_FREE, call_timeout_s=DEADLINE_S) as manager:
        ghost = manager.pids[0]
        watch = os.pidfd_open(ghost)
        try:
            stop_then_wake = {(0, 2): signal.SIGSTOP, (0, 4): signal.SIGCONT}

            def send(number: int) -> None:
                if number == signal.SIGCONT:
                    with pytest.raises(ProcessLookupError):
                        signal.pidfd_send_signal(watch, number)
                else:
                    signal.pidfd_send_signal(watch, number)

            assert stream_hash(manager, TRIALS, tamper=at(dict(stop_then_wake), send)) == fault_free()
            assert ghost not in manager.pids
        finally:
            os.close(watch)


# -- B7, B8: factories and locks -----------------------------------------------------------------------------


def test_a_factory_that_takes_too_long_is_one_error_at_the_deadline() -> None:
    started = time.monotonic()
    with pytest.raises(BackendError, match=rf"could not be built: gave no answer within {DEADLINE_S} s"):
        manage(faulty(Path(), "sleep", times=0, where="make_shard"), construct_timeout_s=DEADLINE_S)
    assert time.monotonic() - started < DEADLINE_S + 30.0


LOCK = threading.Lock()


class LockedFamily(CountingFamily):
    """Needs a lock of its module to be built."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        with LOCK:
            return super().make_shard(num_slots, threads)


def test_a_lock_that_a_thread_of_the_trainer_holds_keeps_no_worker_waiting() -> None:
    """It would if workers were forks of the trainer: then it is an error at the deadline, with the place."""
    with LOCK:
        with manage(LockedFamily(FAULT_FREE.config)) as manager:
            assert "fork)" not in manager.description and played(manager) == fault_free()
        with pytest.raises(BackendError, match=r"gave no answer within(.|\n)*in make_shard"):
            manage(
                LockedFamily(FAULT_FREE.config), start_method=StartMethod.fork, construct_timeout_s=DEADLINE_S
            )


# -- B10: a trainer that errs --------------------------------------------------------------------------------


def start(manager: ParallelEnvManager) -> None:
    """Start a trial in every slot."""
    manager.reset(np.full((SLOTS, 2), 0.5), list(range(SLOTS)))


@pytest.mark.parametrize("fault", ["raise", "sleep", "kill"])
def test_an_error_of_the_trainer_between_send_and_recv_leaves_nothing(fault: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        manage(faulty(tmp_path, fault, at=1), close_timeout_s=0.2) as manager,
    ):
        start(manager)
        for slot in (0, 4):
            manager.remotes[slot].send(("step", STILL[0]))
        raise ZeroDivisionError
    assert manager.pids == []


class Interrupting:
    """Sends a signal to the process that made it."""

    def __init__(self, number: signal.Signals) -> None:
        self.number, self.pid = number, os.getpid()

    def __call__(self) -> None:
        os.kill(self.pid, self.number)


def test_ctrl_c_within_a_step_closes_everything() -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        manage(DoingFamily(Interrupting(signal.SIGINT)), workers=1) as manager,
    ):
        start(manager)
        for _ in range(3):
            manager.step(STILL)
    assert manager.pids == []


def test_ctrl_c_while_a_worker_is_replaced_closes_everything(tmp_path: Path) -> None:
    class Rebuilt(DoingFamily):
        """Interrupts the trainer when it is built for the second time."""

        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            if (tmp_path / "armed").exists():
                (tmp_path / "armed").unlink()
                self.do()
            return CountingFamily.make_shard(self, num_slots, threads)

    manager = manage(Rebuilt(Interrupting(signal.SIGINT)))
    start(manager)
    (tmp_path / "armed").touch()
    os.kill(manager.pids[0], signal.SIGKILL)
    with pytest.raises(KeyboardInterrupt):
        manager.step(STILL)
        manager.step(STILL)
    assert manager.pids == []
    with pytest.raises(RuntimeError, match="closed"):
        manager.step(STILL)


def test_a_call_from_within_a_call_is_refused_and_changes_nothing() -> None:
    refused: list[str] = []

    def handler(*_: object) -> None:
        for call in (lambda: manager.step(STILL), lambda: manager.reset(), lambda: manager.render(0)):
            with pytest.raises(RuntimeError) as caught:
                call()
            refused.append(str(caught.value))

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with manage(DoingFamily(Interrupting(signal.SIGUSR2)), workers=1) as manager:
            start(manager)
            for _ in range(3):
                manager.step(STILL)
            assert manager.rows.info[:, 0].tolist() == [3.0] * SLOTS
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert len(refused) == 3 and all("one thread at a time" in text for text in refused)

"""The first signal is a request, the second is not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from utils.stop_signal import PREEMPTION, StopSignal, hand_on, preemption_signal


@pytest.fixture(autouse=True)
def not_under_nohup() -> Iterator[None]:
    """The process that started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, PREEMPTION])
def test_the_first_signal_is_noted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert stop.received == number
    assert signal.getsignal(number) == before


def test_a_second_interrupt_acts_as_always() -> None:
    with StopSignal(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGINT])
def test_a_terminal_that_closes_says_so_twice(first: signal.Signals) -> None:
    with StopSignal() as stop:
        for number in (first, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop.received == first
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_in_a_thread_nothing_is_touched() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with StopSignal() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.received))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(before, None)]


def test_under_nohup_a_closed_terminal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.received is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_in_a_fork_the_signals_act_as_always() -> None:
    """An environment in this process may start one and end it by `terminate()`."""
    with StopSignal() as stop:
        if not (child := os.fork()):
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM


def test_a_preemption_reaches_the_launcher_when_the_checkpoint_is_written_and_in_no_fork() -> None:
    told: list[int] = []
    before = signal.signal(PREEMPTION, lambda number, frame: told.append(number))
    try:
        with StopSignal() as stop:
            if not (child := os.fork()):
                os.kill(os.getpid(), PREEMPTION)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -PREEMPTION
            for _ in range(2):
                os.kill(os.getpid(), PREEMPTION)
            assert (stop.received, told) == (PREEMPTION, [])
        hand_on(signal.SIGTERM)
        assert told == []
        hand_on(PREEMPTION)
        assert told == [PREEMPTION]
    finally:
        signal.signal(PREEMPTION, before)
    hand_on(PREEMPTION)  # without a launcher there is nobody to tell, and this process lives on


@pytest.mark.parametrize(
    ("named", "expected"), [(None, signal.SIGUSR2), ("USR1", signal.SIGUSR1), ("no", signal.SIGUSR2)]
)
def test_the_signal_of_a_preemption_is_the_one_that_submitit_is_told(
    named: str | None, expected: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUBMITIT_PREEMPT_SIGNAL", raising=False)
    if named is not None:
        monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", named)
    assert preemption_signal() == expected

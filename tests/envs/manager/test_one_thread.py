"""OneThread: a second thread is refused; the end waits for the thread inside, but not for its own."""

from __future__ import annotations

import threading

import pytest

from envs.manager.one_thread import OneThread


def in_another_thread(turn: OneThread) -> str:
    """What another thread gets that tries to come in."""
    answers: list[str] = []

    def come_in() -> None:
        try:
            with turn:
                answers.append("in")
        except RuntimeError as error:
            answers.append(str(error))

    thread = threading.Thread(target=come_in)
    thread.start()
    thread.join()
    return answers[0]


def test_a_second_thread_is_refused_while_the_first_is_inside() -> None:
    turn = OneThread()
    with turn:
        assert in_another_thread(turn).startswith("Another thread is in the middle of a call")
    assert in_another_thread(turn) == "in"


def test_after_the_end_no_thread_gets_in() -> None:
    turn = OneThread()
    turn.closed = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="The manager is closed"), turn:
            pass
    assert in_another_thread(turn) == "The manager is closed."


def test_the_end_waits_for_the_thread_inside_and_not_for_its_own() -> None:
    turn = OneThread()
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with turn:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(30)
    assert not turn.wait_until_free(0.01), "it is still inside"
    leave.set()
    assert turn.wait_until_free(30)
    turn.leave()
    thread.join()
    with turn:
        assert not turn.wait_until_free(30), "at once: this thread cannot wait for itself"

"""A worker as the trainer sees it: answers are taken in order, once, from this generation; anything else is
dropped or ends the worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.backends.base import Block, segments_of
from envs.backends.workers.handle import WorkerHandle
from envs.backends.workers.launch import Child
from envs.backends.workers.messages import REPLY, REQUEST, SHAPE, MessageKind, Status, token_of
from envs.backends.workers.transport import SentRows, SharedRows
from envs.layout import Layout
from tests.toys import CountingFamily


class FakeProcess:
    """A process that ends when it is killed, and has no number that could be anybody's."""

    pid = 2**31 - 2

    def __init__(self) -> None:
        self.sentinel, self._end = os.pipe()
        self.exitcode: int | None = None

    def kill(self) -> None:
        self.exitcode = -9
        os.close(self._end)

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return self.exitcode is None

    def close(self) -> None:
        os.close(self.sentinel)


class Bench:
    """A handle of slots 0..3, with the worker's ends of its pipes in our hands."""

    def __init__(self, kind: type[SharedRows] | type[SentRows] = SharedRows) -> None:
        family = CountingFamily()
        self.transport = kind(Layout(family.spec), 4)
        self.handle = WorkerHandle(0, segments_of([Block(lambda: family, 0, 4)], 1, 2), self.transport)
        self.start_process()

    def start_process(self) -> None:
        """Put a new process in its place."""
        self.requests, to = os.pipe()
        back, self.replies = os.pipe()
        os.set_blocking(to, False)
        os.set_blocking(back, False)
        process: Any = FakeProcess()
        self.handle.attach(Child(process, to, back))

    def ask(self, sequence: int, slots: slice, kind: MessageKind = MessageKind.STEP) -> None:
        self.handle.send(sequence, kind, 0, slots, b"", 1.0)

    def answer(
        self, sequence: int, status: Status = Status.DONE, body: bytes = b"", generation: int | None = None
    ) -> None:
        token = token_of(self.handle.generation if generation is None else generation, sequence)
        os.write(self.replies, REPLY.pack(token, status, len(body)) + body)
        self.handle.read_replies()

    def leave(self) -> None:
        self.handle.kill()
        assert self.handle.release(0.0)
        os.close(self.requests)
        os.close(self.replies)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.leave()
    made.transport.close()
    vars(made).clear()  # mapped rows keep a descriptor, and the test's arguments outlive it


def test_answers_are_counted_in_the_order_of_the_requests(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.ask(6, slice(2, 4))
    assert [REQUEST.unpack(os.read(bench.requests, REQUEST.size))[0] for _ in range(2)] == [
        token_of(0, 5),
        token_of(0, 6),
    ]
    bench.answer(5)
    assert bench.handle.answered == 5
    bench.answer(6)
    assert bench.handle.answered == 6 and bench.handle.fault is None


def test_an_answer_that_comes_twice_or_late_is_dropped_and_counted(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.answer(5)
    bench.ask(6, slice(0, 2))
    bench.answer(5)
    bench.answer(3)
    assert (bench.handle.answered, bench.handle.stale, bench.handle.fault) == (5, 2, None)
    bench.answer(6)
    assert bench.handle.answered == 6


def test_an_answer_of_an_earlier_generation_is_dropped_and_counted(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.answer(5)
    bench.leave()
    bench.start_process()
    bench.ask(6, slice(0, 4), MessageKind.BUILD)
    bench.answer(6)
    bench.ask(7, slice(0, 2))
    bench.answer(7, generation=0)
    assert (bench.handle.answered, bench.handle.stale, bench.handle.fault) == (6, 1, None)
    bench.answer(7)
    assert bench.handle.answered == 7


@pytest.mark.parametrize(
    "case", ["unasked", "out of order", "future generation", "rows", "no json", "no facts", "deep", "picture"]
)
def test_an_answer_to_nothing_that_was_asked_ends_the_worker(bench: Bench, case: str) -> None:
    bench.ask(5, slice(0, 2))
    bench.ask(6, slice(2, 4))
    if case == "unasked":
        bench.answer(9)
    elif case == "out of order":
        bench.answer(6)
    elif case == "future generation":
        bench.answer(5, generation=1)
    else:
        status = {"rows": Status.DONE, "picture": Status.PICTURE}.get(case, Status.RAISED)
        body = {
            "rows": b"xx",
            "no json": b"{",
            "no facts": b"[]",
            "deep": b"[" * 50_000,
            "picture": SHAPE.pack(9, 9, 3) + b"xx",
        }[case]
        bench.answer(5, status, body)
    fault = bench.handle.fault
    assert (
        fault is not None
        and fault.sentence == "was lost: its worker process wrote something that is no answer"
    )
    assert fault.slots == fault.lost == (0, 1, 2, 3)


def test_an_error_names_its_slot_and_loses_all_slots_of_the_worker(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.ask(6, slice(2, 4))
    bench.answer(
        5, Status.RAISED, json.dumps({"type": "E", "message": "m", "traceback": "t", "slot": 1}).encode()
    )
    fault = bench.handle.fault
    assert fault is not None and (fault.slots, fault.lost, fault.sentence, fault.traceback) == (
        (1,),
        (0, 1, 2, 3),
        "raised E: m",
        "t",
    )
    bench.answer(6)
    assert bench.handle.answered == -1, "it is asked nothing, and believed nothing, any more"


def test_an_error_that_names_no_slot_that_was_asked_names_those_that_were(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.answer(
        5, Status.RAISED, json.dumps({"type": "E", "message": "m", "traceback": "t", "slot": 3}).encode()
    )
    assert bench.handle.fault is not None and bench.handle.fault.slots == (0, 1)


def test_a_picture_that_cannot_be_drawn_costs_nothing_else(bench: Bench) -> None:
    bench.ask(5, slice(0, 1), MessageKind.RENDER)
    bench.answer(
        5, Status.RAISED, json.dumps({"type": "E", "message": "m", "traceback": "t", "slot": None}).encode()
    )
    assert bench.handle.fault is None and bench.handle.answered == 5
    assert not isinstance(bench.handle.picture, np.ndarray) and bench.handle.picture is not None


def test_what_was_answered_before_the_end_is_taken_and_half_an_answer_is_not(bench: Bench) -> None:
    bench.ask(5, slice(0, 2))
    bench.ask(6, slice(2, 4))
    whole = REPLY.pack(token_of(0, 5), Status.DONE, 0)
    os.write(bench.replies, whole + REPLY.pack(token_of(0, 6), Status.DONE, 0)[:-3])
    bench.handle.read_to_end()
    fault = bench.handle.fault
    assert (
        bench.handle.answered == 5
        and fault is not None
        and fault.slots == (2, 3)
        and fault.lost == (0, 1, 2, 3)
    )


def test_rows_of_an_answer_are_those_of_the_slots_that_were_asked() -> None:
    bench = Bench(SentRows)
    other = SentRows(Layout(CountingFamily().spec), 4)
    other.rows.reward[:] = [1, 2, 3, 4]
    bench.ask(5, slice(1, 3))
    bench.answer(5, body=other.pack(slice(1, 3)))
    assert bench.transport.rows.reward.tolist() == [0, 2, 3, 0]
    bench.leave()


def test_the_time_for_an_answer_begins_when_everything_before_is_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    bench.ask(5, slice(0, 2))
    bench.ask(6, slice(2, 4))
    assert bench.handle.deadline(10.0) == 110.0
    now[0] = 107.0
    bench.answer(5)
    assert bench.handle.deadline(10.0) == 117.0

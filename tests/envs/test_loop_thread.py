"""LoopThread: it runs while nobody waits, an interrupted call ends its work, and nothing stops it."""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from envs.loop_thread import LoopThread, PunctualSelector


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread("event loop of a test")
    yield made
    made.end()
    made.thread.join(60.0)
    assert not made.thread.is_alive()


async def raise_now() -> None:
    raise ValueError("odd")


def test_work_runs_there_and_its_error_is_raised_here(loop: LoopThread) -> None:
    names: list[str] = []

    async def work() -> None:
        names.append(threading.current_thread().name)

    loop.run(work())
    assert names == ["event loop of a test"]
    with pytest.raises(ValueError, match="odd"):
        loop.run(raise_now())


def test_tasks_go_on_between_two_calls(loop: LoopThread) -> None:
    """As the keep-alive of a connection has to, while the trainer learns."""
    alive, background = threading.Event(), list[asyncio.Task[None]]()

    async def tick() -> None:
        await asyncio.sleep(0.01)
        alive.set()

    async def begin() -> None:
        background.append(asyncio.create_task(tick()))

    loop.run(begin())
    assert alive.wait(60.0)


def test_an_interrupted_call_ends_its_work_and_nothing_else(loop: LoopThread) -> None:
    ended: list[str] = []
    others: list[asyncio.Task[None]] = []

    async def work() -> None:
        others.append(asyncio.create_task(asyncio.sleep(600.0)))
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert ended == ["cancelled"] and not others[0].done()


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_an_interruption_while_work_is_handed_over_leaves_nothing_behind(
    loop: LoopThread, is_handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = loop.loop.call_soon_threadsafe

    async def work() -> None:
        await asyncio.Event().wait()

    def interrupted(*arguments: Any) -> None:
        monkeypatch.undo()
        if is_handed_over:
            call(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert not asyncio.all_tasks(loop.loop)
    loop.run(asyncio.sleep(0.0))


def test_what_stops_the_loop_does_not_end_it(loop: LoopThread, caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        sys.exit(4)

    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.0)
        asyncio.create_task(leave())  # noqa: RUF006
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)

    loop.run(stop())
    loop.run(stop())
    gc.collect()
    assert len(caplog.records) == 1
    assert "An environment stopped the event loop, which goes on." in caplog.text


def test_an_error_that_nobody_asks_for_is_told_with_its_reason(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    async def begin() -> None:
        task = asyncio.create_task(raise_now())
        task.add_done_callback(lambda _: ended.set())

    loop.run(begin())
    assert ended.wait(60.0)
    loop.run(asyncio.sleep(0))
    gc.collect()
    assert "Task exception was never retrieved (ValueError: odd)" in caplog.text


def test_the_end_cancels_what_still_runs_and_then_runs_the_last_work() -> None:
    order: list[str] = []
    began = threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cancelled")

    async def last() -> None:
        order.append("last")

    loop = LoopThread("event loop of a test")
    tasks: list[asyncio.Task[None]] = []
    loop.loop.call_soon_threadsafe(lambda: tasks.append(loop.loop.create_task(wait())))
    assert began.wait(60.0)
    loop.end(last)
    loop.thread.join(60.0)
    assert order == ["cancelled", "last"] and loop.loop.is_closed()


def test_the_selector_wakes_for_what_is_ready_and_for_nothing_at_its_time() -> None:
    selector = PunctualSelector()
    reader, writer = os.pipe()
    try:
        selector.register(reader, selectors.EVENT_READ, "here")
        for timeout in (0, -1, 0.0004):
            assert selector.select(timeout) == []
        os.write(writer, b"x")
        for timeout in (0, 10.0, None):
            assert [key.data for key, _ in selector.select(timeout)] == ["here"]
    finally:
        os.close(reader)
        os.close(writer)
        selector.close()

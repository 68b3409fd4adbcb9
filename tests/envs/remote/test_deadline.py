"""A deadline is told of once, late or never, and one timer serves many messages."""

from __future__ import annotations

import asyncio

from envs.remote.deadline import Deadline


def test_a_message_that_takes_too_long_is_told_of_once() -> None:
    async def work() -> None:
        told = asyncio.Event()
        deadline = Deadline(0.05, told.set)
        deadline.start()
        assert not deadline.passed
        await asyncio.wait_for(told.wait(), 60.0)
        assert deadline.passed
        told.clear()
        await asyncio.sleep(0.2)
        assert not told.is_set()

    asyncio.run(work())


def test_messages_in_time_are_not_told_of_and_the_last_one_has_its_whole_time() -> None:
    async def work() -> None:
        loop, told = asyncio.get_running_loop(), list[float]()
        deadline = Deadline(0.3, lambda: told.append(loop.time()))
        # The timer of the first message rings while the second is under way.
        deadline.start()
        await asyncio.sleep(0.2)
        deadline.stop()
        began = loop.time()
        deadline.start()
        while not told and loop.time() < began + 60.0:
            await asyncio.sleep(0.01)
        assert told and told[0] - began >= 0.3

    asyncio.run(work())


def test_an_idle_deadline_rings_for_nobody_and_serves_again() -> None:
    async def work() -> None:
        told = asyncio.Event()
        deadline = Deadline(0.05, told.set)
        deadline.start()
        deadline.stop()
        await asyncio.sleep(0.2)
        assert not told.is_set() and not deadline.passed
        deadline.start()
        await asyncio.wait_for(told.wait(), 60.0)

        ended = Deadline(0.05, told.clear)
        ended.start()
        ended.end()
        await asyncio.sleep(0.2)
        assert told.is_set()

    asyncio.run(work())

"""A loop starts when it is needed, stays between calls, and ends with its owner."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from envs.remote.rollouts.home_loop import HomeLoop, shared_loop


async def here() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()


def test_a_loop_stays_between_calls_and_ends() -> None:
    before = threading.active_count()
    home = HomeLoop("test")
    assert threading.active_count() == before, "it is not needed yet"
    first = home.run(here())
    assert home.run(here()) == first and first[1] != threading.get_ident()
    home.end()
    home.end()
    assert threading.active_count() == before and first[0].is_closed()
    # It can be needed again.
    assert home.run(here())[0] is not first[0]
    home.end()


def test_the_shared_loop_lives_while_anybody_keeps_it() -> None:
    one, two = shared_loop(), shared_loop()
    assert one is two
    thread = one.thread.thread
    del one
    gc.collect()
    assert two.run(here())[1] == thread.ident
    del two
    gc.collect()
    thread.join(60.0)
    assert not thread.is_alive()


def test_work_that_is_cancelled_has_ended_when_its_caller_goes_on() -> None:
    """Also where it takes a while to end: a session is in order again only then."""
    home, told = HomeLoop("test"), list[str]()

    async def work() -> None:
        try:
            told.append("begins")
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(0.1)
            told.append("has ended")

    async def caller() -> None:
        try:
            await asyncio.wait_for(home.awaited(work()), 0.2)
        except TimeoutError:
            told.append("goes on")

    asyncio.run(caller())
    home.end()
    assert told == ["begins", "has ended", "goes on"]


def test_work_is_awaited_from_any_loop_and_its_error_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("as planned")

    async def caller() -> None:
        assert (await home.awaited(here()))[0] is home.thread.loop
        with pytest.raises(ValueError, match="as planned"):
            await home.awaited(fails())

    home = HomeLoop("test")
    asyncio.run(caller())
    home.run(caller())
    home.end()

"""A loop starts when it is needed, stays between calls, and ends with its owner."""

from __future__ import annotations

import asyncio
import gc
import threading

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

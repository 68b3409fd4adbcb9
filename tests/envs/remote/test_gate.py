"""Gates are shared by the sessions of a loop on one server and by no others (test_session.py plays them)."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

from envs.remote.gate import Gate, gate_of
from envs.remote.service_board import board_of_this_process
from envs.remote.service_setup import Limits, Measure


def test_a_gate_belongs_to_a_loop_a_server_and_its_limits() -> None:
    limits = Limits(max_in_flight=1)

    async def gates() -> list[int]:
        asked = [("a", limits), ("a", Limits(max_in_flight=1)), ("b", limits), ("a", Limits())]
        return [id(gate_of(*one)) for one in asked]

    first, same, other, free = asyncio.run(gates())
    assert first == same and len({first, other, free}) == 3


def test_a_turn_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    async def work() -> None:
        gate = gate_of("a", Limits(max_in_flight=1))
        async with gate.turn():
            waiting = asyncio.create_task(_enter())
            await asyncio.sleep(0.01)
            waiting.cancel()
        await asyncio.wait_for(_enter(), 20.0)

    async def _enter() -> None:
        async with gate_of("a", Limits(max_in_flight=1)).turn():
            return

    asyncio.run(work())


def test_what_a_run_shows_of_a_server() -> None:
    shown = Measure(messages=4, in_flight_s=2.0, bytes_sent=100, bytes_received=300, refusals=1).shown()
    assert (shown["in_flight_ms"], shown["bytes_per_message"], shown["refusals"]) == (500.0, 100.0, 1)
    assert Measure().shown()["in_flight_ms"] == 0.0


def test_loops_with_a_board_share_a_limit_and_without_one_have_each_their_own() -> None:
    """Two loops in two threads, which meet inside where they are not kept apart."""

    def most_inside(limits: Limits) -> int:
        inside, most = list[int](), list[int]()

        async def work() -> None:
            for _ in range(10):
                async with gate_of("a", limits).turn():
                    inside.append(1)
                    most.append(len(inside))
                    await asyncio.sleep(0.02)
                    inside.pop()

        threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        return max(most)

    board = board_of_this_process()
    assert most_inside(Limits(max_in_flight=1, board=board)) == 1
    assert most_inside(Limits(max_in_flight=1)) == 2


def test_places_are_given_in_order_and_pass_those_who_were_cancelled() -> None:
    async def work() -> list[int]:
        limits, order = Limits(max_in_flight=1), list[int]()

        async def enter(number: int) -> None:
            async with gate_of("a", limits).turn():
                order.append(number)
                await asyncio.sleep(0)

        async with gate_of("a", limits).turn():
            waiting = [asyncio.create_task(enter(number)) for number in range(5)]
            await asyncio.sleep(0.01)
            waiting[0].cancel()
            await asyncio.sleep(0)
        waiting[1].cancel()  # it was given the place just now
        await asyncio.wait_for(asyncio.wait(waiting), 20.0)
        return order

    assert asyncio.run(work()) == [2, 3, 4]


def test_a_gate_ends_with_its_loop_also_where_somebody_has_waited() -> None:
    async def work() -> weakref.ref[Gate]:
        gate = gate_of("a", Limits(max_in_flight=1, board=board_of_this_process()))

        async def enter() -> None:
            async with gate.turn():
                await asyncio.sleep(0)

        await asyncio.gather(*(enter() for _ in range(3)))
        return weakref.ref(gate)

    gate = asyncio.run(work())
    gc.collect()
    assert gate() is None

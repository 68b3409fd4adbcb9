"""Gates are shared by the sessions of a loop on one server and by no others (test_session.py plays them)."""

from __future__ import annotations

import asyncio

from envs.remote.gate import gate_of
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

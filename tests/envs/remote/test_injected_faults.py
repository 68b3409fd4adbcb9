"""Two hundred faults at random places of random episodes: no answer is ever taken for another one.

A server that answers twice is not among them: its second answer may come after the next request was sent, and
the protocol has no number by which it could be told apart. test_session.py has it before the next request.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from envs.remote import serving
from envs.remote.protocol import CallRefusedError, SessionLostError
from envs.remote.service_setup import Patience
from envs.remote.serving import ServedApp
from envs.remote.session import Session
from tests.envs.remote.dead_line import DeadLine
from tests.envs.remote.fake_server import FakeServer, Game
from tests.envs.remote.servers.real import kill

FAULTS = 200
# Of one step: no answer, one that is late or nonsense, an error, a line that is cut.
OF_A_STEP = ["hang", "cut", "garbage", "nonsense", "SESSION_ERROR", "EXECUTION_ERROR", 0.3]
# Of the server or of the line: every session on it is cut, goes dead without a word, or finds no seat.
OF_ALL = ["restart", "half-open", "capacity"]
KINDS = {*OF_A_STEP, *OF_ALL, "cancel"}


async def played_with_faults(
    url: str, rng: random.Random, worker: int, injected: list[Any], enough: Callable[[], bool]
) -> list[str]:
    """Play episodes until there were enough faults; every answer that is not that of its own request."""
    session, wrong, seed = Session(url, Patience(message_s=0.2, total_s=60.0)), list[str](), worker
    while not enough():
        seed = (seed + 7) % 1000
        expected = [seed, worker, 0, 0.0]
        try:
            answer = await session.reset({"seed": seed, "task": worker})
            for t in range(1, 9):
                if answer.observation["numbers"] != expected:
                    wrong.append(f"{answer.observation['numbers']} for {expected}")
                column = rng.randrange(1, 9)
                expected = [seed, worker, t, expected[3] + column]
                step = asyncio.create_task(session.step({"column": column}))
                if rng.random() < 0.02:
                    injected.append("cancel")
                    await asyncio.sleep(0)
                    step.cancel()
                answer = await step
        except (SessionLostError, CallRefusedError, asyncio.CancelledError):
            continue  # the episode is given up, and a reset begins another
    await session.close()
    return wrong


async def sabotage(
    server: FakeServer, line: DeadLine, rng: random.Random, injected: list[Any], enough: Callable[[], bool]
) -> None:
    """Faults that meet many sessions at once, now and then."""
    for kind in cycle(OF_ALL):
        if enough():
            return
        await asyncio.sleep(rng.uniform(0.05, 0.2))
        if kind == "restart":
            await asyncio.to_thread(server.restart)
        elif kind == "half-open":
            line.die()
        else:
            refused, server.seats = server.refused, 0
            await asyncio.sleep(0.3)
            server.seats = 1000
            if server.refused == refused:
                continue  # nobody asked for a seat meanwhile
        injected.append(kind)


def test_no_answer_is_taken_for_another() -> None:
    rng, injected = random.Random(0), list[Any]()

    def enough() -> bool:
        return len(injected) >= FAULTS and set(injected) == KINDS

    def plan(session: int, message: dict[str, Any], index: int) -> str | float | None:
        if message["type"] != "step" or rng.random() > 0.2:
            return None
        injected.append(rng.choice(OF_A_STEP))
        return injected[-1]

    async def work() -> list[list[str]]:
        async with DeadLine(server.port) as line:
            players = [
                played_with_faults((server.url, line.url)[worker % 2], rng, worker, injected, enough)
                for worker in range(8)
            ]
            wrong, _ = await asyncio.gather(
                asyncio.gather(*players), sabotage(server, line, rng, injected, enough)
            )
        return wrong

    with FakeServer(plan, make=lambda: Game(length=100), ping_s=0.5) as server:
        assert asyncio.run(work()) == [[]] * 8


# A server in a process of its own, which can be killed.
PROGRAM = """
import sys, time
from tests.envs.remote.fake_server import FakeServer, Game
with FakeServer(make=lambda: Game(length=100), port=int(sys.argv[1])):
    time.sleep(3600)
"""
KILLS = 3


def test_a_server_that_is_killed_and_started_again_corrupts_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, injected = random.Random(0), list[Any]()

    def enough() -> bool:
        return injected.count("kill") >= KILLS

    async def kills() -> None:
        while not enough():
            await asyncio.sleep(rng.uniform(0.3, 0.6))
            await asyncio.to_thread(kill, server)
            injected.append("kill")

    async def work() -> list[list[str]]:
        players = [played_with_faults(server.url, rng, worker, injected, enough) for worker in range(8)]
        wrong, _ = await asyncio.gather(asyncio.gather(*players), kills())
        return wrong

    monkeypatch.setattr(serving, "command_of", lambda app, port: [sys.executable, "-c", PROGRAM, str(port)])
    server = ServedApp("fake:app")
    server.start()
    try:
        server.wait()
        assert asyncio.run(work()) == [[]] * 8
    finally:
        server.end()

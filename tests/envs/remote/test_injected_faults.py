"""Two hundred faults at random places of random episodes: no answer is ever taken for another one.

A server that answers twice is not among them: its second answer may come after the next request was sent, and
the protocol has no number by which it could be told apart. test_session.py has it before the next request.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from envs.remote.protocol import CallRefusedError, SessionLostError
from envs.remote.service_setup import Patience
from envs.remote.session import Session
from tests.envs.remote.fake_server import FakeServer, Game

FAULTS = 200
KINDS = ["hang", "cut", "garbage", "nonsense", "SESSION_ERROR", "EXECUTION_ERROR", 0.3, "cancel"]


async def played_with_faults(url: str, rng: random.Random, worker: int, injected: list[Any]) -> list[str]:
    """Play episodes until there were enough faults; every answer that is not that of its own request."""
    session, wrong, seed = Session(url, Patience(message_s=0.2, total_s=60.0)), list[str](), worker
    while len(injected) < FAULTS:
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


def test_no_answer_is_taken_for_another() -> None:
    rng, injected = random.Random(0), list[Any]()

    def plan(session: int, message: dict[str, Any], index: int) -> str | float | None:
        if message["type"] != "step" or rng.random() > 0.2:
            return None
        injected.append(rng.choice(KINDS[:-1]))
        return injected[-1]

    async def work() -> list[list[str]]:
        return await asyncio.gather(
            *(played_with_faults(server.url, rng, worker, injected) for worker in range(8))
        )

    with FakeServer(plan, make=lambda: Game(length=100)) as server:
        wrong = asyncio.run(work())
    assert wrong == [[]] * 8
    assert len(injected) >= FAULTS and set(injected) == set(KINDS)

"""Our sessions against a real server process: killed, frozen, slow, too large, many at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest

from envs.remote.protocol import CallRefusedError, SessionLostError
from envs.remote.service_setup import Patience
from envs.remote.serving import ServedApp
from envs.remote.session import Session
from tests.envs.remote.servers.real import kill, serving

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")


@pytest.fixture(scope="module")
def server() -> Iterator[ServedApp]:
    with serving("echo") as made:
        yield made


@pytest.fixture(autouse=True)
def a_server_that_runs(server: ServedApp) -> None:
    """Made before what a test leaves behind is looked at."""


def test_eight_sessions_at_once_wait_at_the_same_time(server: ServedApp) -> None:
    async def episode(number: int) -> list[str]:
        session = Session(server.url)
        await session.reset({"seed": number, "wait_s": 0.2, "length": 6})
        said = [await session.step({"message": f"{number} {t}"}) for t in range(6)]
        assert said[-1].done and said[0].observation["seed"] == number
        await session.close()
        return [answer.observation["message"] for answer in said]

    async def work() -> None:
        began = time.monotonic()
        told = await asyncio.gather(*(episode(number) for number in range(8)))
        assert told == [[f"{number} {t}" for t in range(6)] for number in range(8)]
        assert time.monotonic() - began < 8 * 6 * 0.2, "one after the other it would take longer"

    asyncio.run(work())


def test_a_server_killed_in_a_step_ends_the_session_and_a_reset_begins_anew() -> None:
    async def work() -> None:
        session = Session(server.url, Patience(total_s=120.0))
        await session.reset({"seed": 1})
        await session.step({"message": "one"})
        step = asyncio.create_task(session.step({"message": "two", "wait_s": 60.0}))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(kill, server)
        with pytest.raises(SessionLostError, match="was cut"):
            await step
        with pytest.raises(SessionLostError, match="a reset opens one"):
            await session.step({"message": "three"})
        await session.reset({"seed": 2})
        answer = await session.step({"message": "four"})
        assert (answer.observation["step"], answer.observation["seed"]) == (1, 2)
        await session.close()

    with serving("echo") as server:
        asyncio.run(work())


def test_a_frozen_server_is_a_time_out_and_its_late_answer_is_never_read(server: ServedApp) -> None:
    async def work() -> None:
        session = Session(server.url, Patience(message_s=3.0, total_s=60.0))
        await session.reset({"seed": 1})
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SessionLostError, match=r"no answer within 3 s"):
                await session.step({"message": "late"})
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await session.reset({"seed": 2})
        answer = await session.step({"message": "new"})
        assert (answer.observation["message"], answer.observation["step"]) == ("new", 1)
        await session.close()

    asyncio.run(work())


def test_errors_of_the_environment_and_wrong_actions_leave_the_session(server: ServedApp) -> None:
    async def work() -> None:
        session = Session(server.url)
        await session.reset({"seed": 1})
        with pytest.raises(CallRefusedError, match=r"EXECUTION_ERROR.*it was told to fail"):
            await session.step({"fail": True})
        with pytest.raises(CallRefusedError, match=r"VALIDATION_ERROR.*massage"):
            await session.step({"massage": "x"})
        assert (await session.step({"message": "on"})).observation["step"] == 1
        assert (await session.state())["step_count"] == 1
        await session.close()

    asyncio.run(work())


def test_a_message_that_is_too_large_ends_the_session(server: ServedApp) -> None:
    async def work() -> None:
        session = Session(server.url, Patience(max_message_mb=1))
        await session.reset({"seed": 1})
        with pytest.raises(SessionLostError):
            await session.step({"padding": 2 * 2**20})
        assert not session.is_open
        await session.reset({"seed": 1})
        await session.close()

    asyncio.run(work())

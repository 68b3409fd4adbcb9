"""The promises of a session: a step is sent once, doubt ends a session, and only a reset opens one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from envs.remote import session as session_module
from envs.remote.protocol import CallRefusedError, CapacityError, RemoteError, SessionLostError
from envs.remote.service_setup import MEASURES, Limits, Patience
from envs.remote.session import Session
from tests.envs.remote.fake_server import FakeServer, Plan

# For answers that never come, or too late: all others are there long before, on a busy machine too.
SHORT, TOO_LATE = Patience(message_s=2.0, total_s=60.0), 4.0


def numbers(answer: Any) -> list[float]:
    return answer.observation["numbers"]


def at_step(t: int, fault: str | float) -> Plan:
    """A fault at the t-th step of the first session."""
    return lambda session, message, index: fault if (session, index) == (0, t) else None


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_an_episode_of_a_session() -> None:
    async def work() -> None:
        session = Session(server.url)
        start = await session.reset({"seed": 7, "task": 2.0})
        assert numbers(start) == [7, 2.0, 0, 0] and start.reward is None and not start.done
        for t in range(1, 6):
            answer = await session.step({"column": 1})
            assert (numbers(answer)[2], answer.reward, answer.done) == (t, float(t), t == 5)
        await session.reset({"seed": 8})
        await session.close()
        assert not session.is_open

    with FakeServer() as server:
        play(work())
        assert server.sessions == 1, "an episode needs no session of its own"
    assert server.log[-1][1] == {"type": "close"}


@pytest.mark.parametrize("fault", ["hang", "cut", "garbage", "nonsense", "SESSION_ERROR", TOO_LATE])
def test_a_step_without_an_answer_ends_the_session_and_is_never_sent_again(fault: str | float) -> None:
    async def work() -> None:
        session = Session(server.url, SHORT)
        await session.reset({"seed": 7})
        await session.step({"column": 1})
        with pytest.raises(SessionLostError, match=r"127\.0\.0\.1"):
            await session.step({"column": 2})
        assert not session.is_open
        for _ in range(2):
            with pytest.raises(SessionLostError, match="a reset opens one"):
                await session.step({"column": 3})
        # Only a reset goes on, in a new session, and its episode is new.
        assert numbers(await session.reset({"seed": 9})) == [9, 0.0, 0, 0]
        assert numbers(await session.step({"column": 1})) == [9, 0.0, 1, 1.0]
        await session.close()

    with FakeServer(at_step(2, fault)) as server:
        play(work())
    assert server.steps() == [(0, {"column": 1}), (0, {"column": 2}), (1, {"column": 1})]


@pytest.mark.parametrize("code", ["VALIDATION_ERROR", "EXECUTION_ERROR"])
def test_an_error_of_the_environment_leaves_the_session_in_order(code: str) -> None:
    async def work() -> None:
        session = Session(server.url)
        await session.reset()
        with pytest.raises(CallRefusedError, match=f"{code}: as planned"):
            await session.step({"column": 1})
        assert session.is_open
        assert numbers(await session.step({"column": 1}))[2] == 2
        await session.close()

    with FakeServer(at_step(1, code)) as server:
        play(work())
        assert server.sessions == 1


def test_an_answer_that_comes_twice_is_never_read_as_the_next_one() -> None:
    async def work() -> None:
        session = Session(server.url)
        await session.reset()
        assert numbers(await session.step({"column": 1}))[2] == 1
        # The surplus answer is there as soon as the loop has read it.
        for _ in range(100):
            await asyncio.sleep(0.01)
        with pytest.raises(SessionLostError, match="nobody asked for"):
            await session.step({"column": 1})
        assert not session.is_open

    with FakeServer(at_step(1, "twice")) as server:
        play(work())
    assert len(server.steps()) == 1


def test_a_step_that_is_cancelled_ends_the_session() -> None:
    async def work() -> None:
        session = Session(server.url)
        await session.reset()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.step({"column": 1}), 0.2)
        assert not session.is_open
        with pytest.raises(SessionLostError, match="a reset opens one"):
            await session.step({"column": 1})
        await session.close()

    with FakeServer(at_step(1, "hang")) as server:
        play(work())


def test_two_calls_at_once_are_refused_and_the_first_is_not_disturbed() -> None:
    async def work() -> None:
        session = Session(server.url)
        await session.reset()
        first = asyncio.create_task(session.step({"column": 1}))
        await asyncio.sleep(0.01)
        with pytest.raises(RemoteError, match="each needs its own"):
            await session.step({"column": 2})
        assert numbers(await first)[2:] == [1, 1.0]
        await session.close()

    with FakeServer(at_step(1, 1.0)) as server:
        play(work())
    assert server.steps() == [(0, {"column": 1})]


def test_a_reset_waits_for_a_seat_and_for_a_server_that_restarts() -> None:
    async def work() -> None:
        first, second = Session(server.url), Session(server.url)
        await first.reset()
        waiting = asyncio.create_task(second.reset({"seed": 3}))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.close()
        assert numbers(await waiting)[0] == 3
        # The server goes, and comes back while a reset tries.
        await asyncio.to_thread(server.stop)
        with pytest.raises(SessionLostError):
            await second.step({"column": 1})
        again = asyncio.create_task(second.reset({"seed": 4}))
        await asyncio.sleep(0.2)
        assert not again.done()
        await asyncio.to_thread(server.start)
        assert numbers(await again)[0] == 4
        await second.close()

    with FakeServer(seats=1) as server:
        play(work())
    measure = MEASURES[server.url]
    assert measure.refusals >= 1 and measure.failed_openings >= 1 and measure.reopenings == 1


def test_patience_ends_below_its_deadline_with_the_reason() -> None:
    async def work() -> None:
        impatient = Patience(total_s=0.5)
        first, second = Session(server.url), Session(server.url, impatient)
        await first.reset()
        began = time.monotonic()
        with pytest.raises(CapacityError, match="at capacity") as caught:
            await second.reset()
        assert caught.value.seats == 1 and time.monotonic() - began < 30.0
        await first.close()
        server.stop()
        with pytest.raises(SessionLostError, match=r"cannot be reached.*tried for 0\.5 s"):
            await second.reset()
        server.start()

    with FakeServer(seats=1) as server:
        play(work())


def test_the_pauses_of_sessions_differ_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server that restarts is met by all of its sessions in the same moment, again and again."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def work() -> None:
        for _ in range(8):
            session, pause = Session("http://127.0.0.1:9"), 0.1
            for _ in range(6):
                pause = await session._pause(SessionLostError("gone"), pause, time.monotonic() + 60.0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    play(work())
    assert len(set(slept)) == len(slept)
    assert max(slept[0::6]) <= 0.1 and 1.0 <= min(slept[5::6]) and max(slept) <= 2.0


def test_limits_hold_over_the_sessions_of_a_loop_and_waiting_is_no_time_out() -> None:
    def plan(session: int, message: dict[str, Any], index: int) -> float | None:
        return 0.3 if message["type"] == "step" else None

    async def step(session: Session) -> None:
        await session.step({"column": 1})

    async def work() -> None:
        # Twelve steps of 0.3 s, two at a time: with what they wait, the last ones take longer than a message
        # may, and without that a fifth of it.
        patience, limits = Patience(message_s=1.6), Limits(max_in_flight=2)
        sessions = [Session(server.url, patience, limits) for _ in range(12)]
        for session in sessions:
            await session.reset()
        began = time.monotonic()
        await asyncio.gather(*(step(session) for session in sessions))
        assert time.monotonic() - began >= 6 * 0.3 - 0.05
        for session in sessions:
            await session.close()

    with FakeServer(plan) as server:
        play(work())
    assert MEASURES[server.url].waiting_s >= 2 * (0.3 + 0.6 + 0.9 + 1.2 + 1.5) - 0.05


def test_the_interval_between_two_messages_is_kept() -> None:
    async def work() -> None:
        limits = Limits(min_interval_s=0.1)
        sessions = [Session(server.url, limits=limits) for _ in range(3)]
        began = time.monotonic()
        await asyncio.gather(*(session.reset() for session in sessions))
        assert time.monotonic() - began >= 0.2
        for session in sessions:
            await session.close()

    with FakeServer() as server:
        play(work())


def test_headers_are_sent_and_not_shown() -> None:
    async def work() -> None:
        session = Session(server.url, headers={"Authorization": "Bearer secret"})
        await session.reset()
        assert "secret" not in repr(session)
        await session.close()

    with FakeServer() as server:
        play(work())
    assert server.headers[-1]["Authorization"] == "Bearer secret"


def test_an_answer_that_is_too_large_ends_the_session() -> None:
    class Large:
        def reset(self, data: dict[str, Any]) -> dict[str, Any]:
            return {"observation": {"text": "x" * (data["size"] * 2**20)}, "done": False}

    async def work() -> None:
        session = Session(server.url, Patience(max_message_mb=1, total_s=0.3))
        with pytest.raises(SessionLostError):
            await session.reset({"size": 2})
        assert len((await session.reset({"size": 0})).observation) == 1
        await session.close()

    with FakeServer(make=Large) as server:
        play(work())


@pytest.mark.parametrize(("first", "why"), [("hang", "gave no answer"), ("cut", "was cut")])
def test_a_reset_whose_patience_ends_in_an_attempt_says_why_the_one_before_failed(
    first: str, why: str
) -> None:
    async def work() -> None:
        session = Session(server.url, Patience(message_s=60.0, total_s=0.6))
        with pytest.raises(SessionLostError, match=rf"127\.0\.0\.1.*{why}.*\(tried for 0\.6 s\)"):
            await session.reset()

    with FakeServer(lambda session, message, index: first if session == 0 else "hang") as server:
        play(work())


def test_a_step_looks_nothing_up_that_its_reset_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate before a server is found by its address, its limits and the loop: 3 us that a step has not."""
    found: list[str] = []

    def gate_of(server: str, limits: Limits) -> Any:
        found.append(server)
        return real(server, limits)

    async def work() -> None:
        session = Session(server.url)
        for _ in range(2):
            await session.reset()
            for _ in range(3):
                await session.step({"column": 1})
        await session.close()

    real = session_module.gate_of
    monkeypatch.setattr(session_module, "gate_of", gate_of)
    with FakeServer() as server:
        play(work())
    assert found == [server.url] * 2 and MEASURES[server.url].messages == 8

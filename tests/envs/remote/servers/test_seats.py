"""Seats of a real server: counted, waited for, and given back, also by sessions that end without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from envs.remote.protocol import CapacityError, SessionLostError
from envs.remote.service_setup import MEASURES, Measure, Patience
from envs.remote.session import Session
from tests.envs.remote.dead_line import DeadLine
from tests.envs.remote.servers.real import program

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")

SEATS = 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with few seats, which pings every second and waits a second for the answer."""
    with program("echo", "--seats", str(SEATS), "--ping-s", "1") as address:
        yield address


@pytest.fixture(autouse=True)
def a_server_that_runs(url: str) -> None:
    """Made before what a test leaves behind is looked at."""


def refusals(url: str) -> int:
    return MEASURES.get(url, Measure()).refusals


async def fill(url: str, seats: int = SEATS) -> list[Session]:
    """Take so many seats at once."""
    sessions = [Session(url) for _ in range(seats)]
    await asyncio.gather(*(session.reset({"seed": 1}) for session in sessions))
    return sessions


async def leave(sessions: list[Session]) -> None:
    await asyncio.gather(*(session.close() for session in sessions))


def test_every_seat_can_be_taken_again_and_again_and_one_more_is_refused(url: str) -> None:
    async def work() -> None:
        for round_number in range(4):
            sessions = await fill(url)
            with pytest.raises(CapacityError, match=f"{SEATS}/{SEATS} sessions active") as caught:
                await Session(url, Patience(total_s=1.0)).reset()
            assert caught.value.seats == SEATS
            # All of them still have their seats; then they go, with a goodbye or without.
            assert {(await one.step({"message": "x"})).observation["step"] for one in sessions} == {1}
            for session in sessions if round_number % 2 else []:
                session.abort()
            await leave(sessions)

    asyncio.run(work())


def test_whoever_finds_no_seat_waits_and_gets_the_next_one(url: str) -> None:
    async def work() -> None:
        sessions, refused = await fill(url), refusals(url)
        late = [Session(url, Patience(total_s=120.0)) for _ in range(5)]
        waiting = [asyncio.create_task(session.reset({"seed": 9})) for session in late]
        # Each was refused three times at least, with pauses that grow.
        while refusals(url) < refused + 3 * len(late):
            await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        await leave(sessions[:3])
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        sessions[3].abort()
        await leave(sessions[3:5])
        answers = await asyncio.gather(*waiting)
        assert done and {answer.observation["seed"] for answer in answers} == {9}
        await leave(sessions[5:] + late)

    asyncio.run(work())


async def lost_in_every_way(url: str, line: DeadLine) -> list[Session]:
    """Take all seats, and lose them: by a time-out, a cancelled step, a cut, and a line that goes dead.

    Returns the sessions on that line, of whose end neither side was told.
    """
    impatient = Patience(message_s=0.3)
    half_open = await fill(line.url, 5)
    others = [Session(url, impatient if number < 5 else Patience()) for number in range(SEATS - 5)]
    await asyncio.gather(*(session.reset({"seed": 1}) for session in others))
    line.die()
    for session in others[:5]:
        with pytest.raises(SessionLostError, match=r"no answer within 0\.3 s"):
            await session.step({"message": "x", "wait_s": 0.5})
    for session in others[5:10]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.step({"message": "x", "wait_s": 0.5}), 0.05)
    for session in others[10:]:
        session.abort()
    assert all(session.is_open for session in half_open)
    return half_open


def test_no_seat_is_held_after_three_seconds_on_a_server_that_pings_every_second(url: str) -> None:
    async def held() -> int:
        """How many of the seats were refused three seconds after all were lost."""
        async with DeadLine(int(url.rpartition(":")[2])) as line:
            half_open = await lost_in_every_way(url, line)
            await asyncio.sleep(3.0)
            refused = refusals(url)
            sessions = await fill(url)
            found = refusals(url) - refused
            for session in half_open:
                session.abort()
            await leave(sessions)
        return found

    # The server has its second to spare; only where others need the machine it is tried again.
    assert 0 in (asyncio.run(held()) for _ in range(3))

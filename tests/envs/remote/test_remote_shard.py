"""Slots that are sessions: which server plays which slot, where a slot moves, and what an answer may lack."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.base import SlotError
from envs.meta.make_env import make_parallel_env
from envs.parallel_env_manager import EnvCrashLoopError
from envs.remote.protocol import SessionLostError
from envs.remote.session import Session
from tests.envs.meta.played import Played
from tests.envs.remote.fake_server import FakeServer, Game
from tests.envs.remote.played_service import OPTIONS, family_of, manager_of, rows_of


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


class Silent(Game):
    """Gives no reward."""

    def observed(self, reward: float | None) -> dict[str, Any]:
        return super().observed(None)


def test_slots_are_shared_out_among_servers_by_their_numbers() -> None:
    with FakeServer() as one, FakeServer() as other:
        for backend in ("serial", "asyncio"):
            family = family_of(one, other)
            with manager_of(family, 3, backend) as manager:
                one.log.clear()
                other.log.clear()
                manager.reset(tasks=[[0.0], [1.0], [2.0]])
            told = [
                [message["data"]["task"] for _, message in server.log if message["type"] == "reset"]
                for server in (one, other)
            ]
            assert (sorted(told[0]), told[1]) == ([0, 2], [1])


def test_failover_moves_a_slot_at_a_reset_and_changes_no_row(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer() as one, FakeServer() as other:
        undisturbed = rows_of(family_of(one))
        family = family_of(one, other, failover=True, patience_s=2.0)
        assert rows_of(family, when=lambda t: one.stop() if t == 3 else None) == undisturbed
        one.start()
    # Whoever keeps what is logged keeps the traceback of a fault, and all that its frames hold.
    caplog.clear()


def test_without_failover_a_server_that_stays_away_ends_the_run(server: FakeServer) -> None:
    family = family_of(server, patience_s=0.3)
    with pytest.raises(EnvCrashLoopError, match=r"cannot be reached.*tried for 0\.3 s"):
        rows_of(family, when=lambda t: server.stop() if t == 3 else None)
    server.start()


def test_a_session_for_each_episode(server: FakeServer) -> None:
    for session, more in (("keep", 0), ("per_episode", 1)):
        played = Played(family_of(server, session=session), 1)
        played.reset([0], [[0.0]], [1])
        before = server.sessions
        played.reset([0], [[0.0]], [2])
        assert server.sessions - before == more
        played.shard.close()


def test_a_missing_reward_is_zero_and_told_once_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer(make=Silent) as server:
        rows_of(family_of(server))
        assert caplog.text.count("gives no reward for a step") == 1
        with pytest.raises(EnvCrashLoopError, match="the step has no reward"):
            rows_of(family_of(server, missing_reward="refuse"))


def test_an_error_of_the_environment_is_a_fault_with_its_words() -> None:
    def plan(session: int, message: dict[str, Any], index: int) -> str | None:
        return "EXECUTION_ERROR" if broken and message["type"] == "step" else None

    broken: list[bool] = []
    with FakeServer(plan) as server, make_parallel_env("OpenEnv", 1, 1, urls=[server.url], **OPTIONS) as env:
        env.reset()
        broken.append(True)
        with pytest.raises(EnvCrashLoopError, match="EXECUTION_ERROR: as planned"):
            env.step(np.array([3]))


class Over(Game):
    """The episode of task 1 is over before it begins."""

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        return super().reset(data) | {"done": data["task"] == 1}


def test_a_reset_that_is_over_already_is_a_fault_of_its_slot() -> None:
    with FakeServer(make=Over) as server:
        played = Played(family_of(server), 2)
        with pytest.raises(SlotError, match="the reset answered with an episode that is over") as caught:
            played.reset([0, 1], [[0.0], [1.0]], [1, 2])
        assert caught.value.slot == 1
        played.reset([1], [[2.0]], [1])
        played.shard.close()
        with (
            manager_of(family_of(server), 1) as manager,
            pytest.raises(EnvCrashLoopError, match="over already"),
        ):
            manager.reset(tasks=[[1.0]])


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_pause_of_the_trainer_costs_no_session(backend: str) -> None:
    """The server asks for a sign of life every 0.3 s, and waits for it for less than the pause."""
    with FakeServer(ping_s=0.3, pong_s=1.2) as server:
        family = family_of(server)
        with manager_of(family, 2, backend) as manager:
            manager.reset()
            manager.step(np.full(2, 1))
            opened = server.sessions
            time.sleep(2.0)
            manager.step(np.full(2, 1))
            assert server.sessions == opened and len(server.open) == 2 and manager.faults.restarts == 0
        assert family.measured()[f"openenv/127.0.0.1:{server.port}/reopenings"] == 0


def test_a_loop_that_stands_still_in_such_a_pause_loses_its_session() -> None:
    """What the test above would see, were the loop to run during calls alone."""
    with FakeServer(ping_s=0.3, pong_s=1.2) as server, asyncio.Runner() as runner:
        session = Session(server.url)
        runner.run(session.reset({"task": 0}))
        time.sleep(2.0)
        with pytest.raises(SessionLostError):
            runner.run(session.step({"column": 1}))

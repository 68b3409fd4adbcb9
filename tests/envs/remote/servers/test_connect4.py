"""The family on a real Connect4 server: equal rows everywhere, killed or not, and as the official client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from envs.backends.base import BackendConfig
from envs.layout import Layout
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from envs.remote.serving import ServedApp
from envs.remote.session import Session
from tests.envs.remote.servers.real import kill, program, serving

pytestmark = pytest.mark.peers
pytest.importorskip("openenv")

SLOTS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[ServedApp]:
    with serving("connect4") as made:
        yield made


@pytest.fixture(autouse=True)
def a_server_that_runs(server: ServedApp) -> None:
    """Made before what a test leaves behind is looked at."""


def family_of(server: ServedApp) -> Any:
    return make_family(
        "OpenEnv",
        urls=[server.url],
        observation=["board:42"],
        mask="legal_actions",
        actions=["column:7"],
        tasks=["opponent=0|1|2|3"],
        test_tasks=["opponent=4"],
        max_episode_steps=21,
    )


def rows_of(server: ServedApp, backend: str, killed_at: int | None = None) -> list[Any]:
    """A trial of two games in each slot, always the first legal column."""
    seen: list[Any] = []
    workers = 2 if backend in ("thread", "process") else 1
    settings = BackendConfig(name=backend)
    with ParallelEnvManager(
        family_of(server), SLOTS, episodes_per_trial=2, seed=5, num_workers=workers, backend=settings
    ) as manager:
        rows = manager.reset(tasks=[[float(slot)] for slot in range(SLOTS)])
        while manager.running.any():
            if len(seen) == killed_at:
                kill(server)
            obs: Any = rows.obs
            seen.append((obs["observation"].tolist(), rows.reward.tolist(), rows.terminated.tolist()))
            rows = manager.step(obs["action_mask"].argmax(-1))
    return seen


def test_rows_are_equal_on_every_backend_and_over_a_killed_server() -> None:
    with serving("connect4") as server:
        serial = rows_of(server, "serial")
        assert len(serial) > 10
        for backend in ("thread", "asyncio", "process"):
            assert rows_of(server, backend) == serial
        for backend in ("serial", "thread", "asyncio", "process"):
            assert rows_of(server, backend, killed_at=6) == serial


# In a process of its own, since the client leaves a thread behind.
OFFICIAL = """
import json, sys
from openenv.core import GenericEnvClient
told = []
with GenericEnvClient(base_url=sys.argv[1]) as client:
    result = client.reset(seed=11, opponent=2)
    while not result.done:
        told.append((result.observation["board"], result.reward))
        result = client.step({"column": result.observation["legal_actions"][0]})
    told.append((result.observation["board"], result.reward))
print(json.dumps(told))
"""


def test_an_episode_is_that_of_the_official_client(server: ServedApp) -> None:
    command = [sys.executable, "-c", OFFICIAL, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    told = json.loads(done.stdout)
    assert len(told) > 3
    family = family_of(server)
    shard: Any = family.make_shard(1)
    shard.bind(Layout(family.spec).allocate(1))
    shard.reset(np.array([0]), np.array([[2.0]]), np.array([11], np.uint64))
    for board, reward in told:
        assert shard.rows.obs["observation"][0].tolist() == board
        assert shard.rows.reward[0] == (reward or 0.0)
        if not shard.rows.terminated[0]:
            shard.step(np.array([0]), shard.rows.obs["action_mask"].argmax(-1))
    assert shard.rows.terminated[0]
    shard.close()


def test_the_server_is_an_ordinary_program() -> None:
    async def work(url: str) -> None:
        session = Session(url)
        start = await session.reset({"seed": 1, "opponent": 3})
        after = await session.step({"column": start.observation["legal_actions"][0]})
        assert sum(map(abs, after.observation["board"])) == sum(map(abs, start.observation["board"])) + 2
        await session.close()

    with program("connect4", "--seats", "1") as url:
        asyncio.run(work(url))


def test_a_puzzle_begins_with_seven_stones_of_each_and_our_move() -> None:
    async def boards(url: str) -> list[list[int]]:
        session = Session(url)
        told = {"opponent": 1, "puzzle": True}
        starts = [await session.reset({"seed": seed, **told}) for seed in (1, 1, 2)]
        await session.close()
        return [start.observation["board"] for start in starts]

    with program("connect4") as url:
        first, again, other = asyncio.run(boards(url))
    assert first == again != other
    assert (first.count(1), first.count(-1)) == (7, 7)


def test_the_agent_is_told_what_its_last_move_tried_and_what_was_left_open() -> None:
    """In puzzles: whoever does not block what was tried has that weakness, but for a chance move."""

    async def played(url: str, opponent: int) -> list[tuple[list[int], list[int]]]:
        session, told = Session(url), list[tuple[list[int], list[int]]]()
        for seed in range(30):
            given = {"seed": seed, "opponent": opponent, "careful": True, "puzzle": True}
            start = (await session.reset(given)).observation
            assert start["tried"] == start["left_open"] == [0] * 4
            threats = start["threats"]
            column = max(range(7), key=lambda at: sum(threats[at::7]))
            after = (await session.step({"column": column})).observation
            assert after["tried"] == [threats[direction * 7 + column] for direction in range(4)]
            told.append((after["tried"], after["left_open"]))
        await session.close()
        return told

    with program("connect4") as url:
        for opponent in (0, 2):
            for tried, left_open in asyncio.run(played(url, opponent)):
                # What was tried is closed at once by whoever sees it.
                others = [left_open[at] for at in range(4) if tried[at] and at != opponent]
                assert not any(others)

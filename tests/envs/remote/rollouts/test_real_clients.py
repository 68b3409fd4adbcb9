"""Clients of OpenEnv itself and ours, over a real server: the same rollouts, and none of them is shifted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from envs.remote.serving import ServedApp
from tests.envs.remote.rollouts.clients import both_modes
from tests.envs.remote.servers.real import serving

pytestmark = pytest.mark.peers
openenv: Any = pytest.importorskip("openenv.core")


@pytest.fixture(scope="module")
def server() -> Iterator[ServedApp]:
    with serving("connect4") as made:
        yield made


@pytest.fixture(scope="module")
def echo() -> Iterator[ServedApp]:
    with serving("echo") as made:
        yield made


@pytest.fixture(autouse=True)
def servers_that_run(server: ServedApp, echo: ServedApp) -> None:
    """Made before what a test leaves behind is looked at."""


def play(observation: Any, done: bool) -> dict[str, Any]:
    legal = observation["legal_actions"]
    return {"column": legal[len(observation["board"]) % len(legal)]}


def official(mode: str, url: str, **options: Any) -> Any:
    """A client that can be closed with its thread: the one that goes by who calls leaves it behind."""
    client = openenv.GenericEnvClient(base_url=url, **options)
    return client.sync() if mode == "thread" else client


def collected(clients: list[Any], mode: str) -> list[Any]:
    with ParallelRolloutCollector(mode, max_workers=4) as collector:
        rollouts, _ = collector.collect_with_stats(
            clients, play, episodes=8, seeds=range(8), reset_kwargs=[{"opponent": i % 5} for i in range(8)]
        )
        return [(one.observations, one.actions, one.rewards, one.terminated) for one in rollouts]


@both_modes
def test_official_clients_and_ours_give_the_same_rollouts(server: ServedApp, mode: str) -> None:
    own = [HttpEnvClient(server.url) for _ in range(4)]
    wanted = collected(own, mode)
    for client in own:
        client.close()
    theirs = [official(mode, server.url) for _ in range(4)]
    assert collected(theirs, mode) == wanted and len(wanted) == 8
    for client in theirs if mode == "thread" else []:
        client.close()


@both_modes
def test_an_official_client_that_timed_out_begins_anew_and_reads_no_answer_of_before(
    echo: ServedApp, mode: str
) -> None:
    """Stepped on, it would step an environment that was never reset: step 1 of seed 0."""
    waits = iter([0.0, 3.0])

    def agent(observation: Any, done: bool) -> dict[str, Any]:
        return {"message": str(observation["step"]), "wait_s": next(waits, 0.0)}

    client = official(mode, echo.url, message_timeout_s=1.0)
    with ParallelRolloutCollector(mode) as collector:
        (one,), _ = collector.collect_with_stats(
            [client], agent, seeds=[7], reset_kwargs={"length": 4}, retries=1
        )
    assert one.attempts == 2 and [obs["seed"] for obs in one.observations] == [7] * 4
    assert [obs["step"] for obs in one.observations] == [0, 1, 2, 3]
    assert [obs["message"] for obs in one.observations] == ["", "0", "1", "2"]
    if mode == "thread":
        client.close()


def test_sixty_four_of_our_clients_need_one_thread(echo: ServedApp) -> None:
    clients = [HttpEnvClient(echo.url) for _ in range(64)]
    with ParallelRolloutCollector("async") as collector:
        rollouts, stats = collector.collect_with_stats(
            clients, lambda observation, done: {"message": "x"}, reset_kwargs={"wait_s": 0.01, "length": 5}
        )
    assert stats.total_steps == 320 and all(one.terminated for one in rollouts)

    async def close() -> None:
        await asyncio.gather(*(client.close_async() for client in clients))

    asyncio.run(close())

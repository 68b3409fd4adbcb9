"""The executor of an event loop under its published names, awaited in the loop of a script."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envs.remote.rollouts import AsyncParallelExecutor, HttpEnvClient
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.rollouts.clients import Auto, Awaited, Plain, column


def test_rollouts_by_the_published_names() -> None:
    async def work() -> None:
        executor = AsyncParallelExecutor()
        one = await executor.collect_rollout_async(Awaited(2), column, 1000, "here", seed=5)
        assert (one.env_name, one.episode_length, one.observations[0]["numbers"][0]) == ("here", 2, 5)
        kinds = [Awaited(3), Plain(1), Auto(2)]
        rollouts = await executor.collect_rollouts_async(kinds, column, env_names=["a", "b", "c"])
        assert [(one.env_name, one.episode_length) for one in rollouts] == [("a", 3), ("b", 1), ("c", 2)]
        # A session that lives in this loop is ended here; a client in a thread is whose who made it.
        await executor.disconnect()
        assert [client.disconnects for client in kinds] == [1, 0, 1]
        executor.shutdown()

    asyncio.run(work())


def test_an_error_names_its_episode_without_a_collector_too() -> None:
    async def work() -> None:
        executor = AsyncParallelExecutor()
        clients = [Awaited(), Awaited(faults={(0, 1): ValueError("broken")})]
        with pytest.raises(ValueError, match="broken") as raised:
            await executor.collect_rollouts_async(clients, column, env_names=["a", "b"])
        assert raised.value.__notes__ == ["in episode 1 of b"]
        executor.shutdown()

    asyncio.run(work())


def test_a_client_that_blocks_does_not_hold_up_the_others() -> None:
    async def work() -> None:
        executor = AsyncParallelExecutor(max_workers=1)
        plain, ticks = Plain(2, wait_s=0.1), 0
        playing = asyncio.create_task(executor.collect_rollout_async(plain, column))
        while not playing.done():
            ticks += 1
            await asyncio.sleep(0.005)
        assert ticks > 5
        executor.shutdown()

    asyncio.run(work())


def test_an_error_ends_the_other_episodes() -> None:
    async def work() -> None:
        executor = AsyncParallelExecutor()
        endless = Awaited(10**9, wait_s=0.001)
        broken = Awaited(faults={(0, 1): ValueError("broken")})
        with pytest.raises(ValueError, match="broken"):
            await executor.collect_rollouts_async([endless, broken], column, 10**9)
        assert endless.disconnects == 1, "its session is in doubt"
        assert (await executor.collect_rollout_async(endless, column, 2)).episode_length == 2

    asyncio.run(work())


def test_our_own_clients_outlive_the_loop_of_a_script() -> None:
    async def work(clients: list[HttpEnvClient]) -> list[Any]:
        return await AsyncParallelExecutor().collect_rollouts_async(clients, column)

    with FakeServer() as server:
        clients = [HttpEnvClient(server.url) for _ in range(3)]
        for _ in range(2):
            assert [one.episode_length for one in asyncio.run(work(clients))] == [5, 5, 5]
        assert server.sessions == 3, "the official client would open three more, and keep the seats of these"
        for client in clients:
            client.close()

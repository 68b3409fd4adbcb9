"""Rows of a table of services: sessions that step an echo which waits, each in its own way.

Every row keeps its sessions open, and counts the steps of a stretch of time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from envs.remote.protocol import websocket_url
from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from envs.remote.rollouts.home_loop import HomeLoop
from envs.remote.session import Session

ACTION = {"message": "hello"}
# No episode ends while sessions are stepped.
ENDLESS = 10**9
EPISODE_STEPS = 20

# (step once, end the session)
Opened = tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]
Opener = Callable[[str, float], Awaitable[Opened]]


async def bare(url: str, wait_s: float) -> Opened:
    """A WebSocket and JSON, and nothing that is checked."""
    from websockets.asyncio.client import connect

    connection = await connect(websocket_url(url), compression=None, ping_interval=None, proxy=None)

    async def exchange(kind: str, data: dict[str, Any]) -> Any:
        await connection.send(json.dumps({"type": kind, "data": data}))
        return json.loads(await connection.recv())

    await exchange("reset", {"wait_s": wait_s, "length": ENDLESS})
    return lambda: exchange("step", ACTION), connection.close


async def session(url: str, wait_s: float) -> Opened:
    """Ours, which is never in doubt."""
    made = Session(url)
    await made.reset({"wait_s": wait_s, "length": ENDLESS})
    return lambda: made.step(ACTION), made.close


async def official(url: str, wait_s: float) -> Opened:
    """OpenEnv's own client, awaited."""
    from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

    client: Any = GenericEnvClient(base_url=url)
    await client.reset(wait_s=wait_s, length=ENDLESS)
    return lambda: client.step(ACTION), client.disconnect


class LoopRow:
    """Sessions in one event loop, each stepped by a coroutine at its own pace."""

    note = ""

    def __init__(self, opener: Opener, url: str, wait_s: float, sessions: int) -> None:
        self._home = HomeLoop("sessions that are measured")

        async def opened() -> list[Opened]:
            return list(await asyncio.gather(*(opener(url, wait_s) for _ in range(sessions))))

        self._sessions = self._home.run(opened())

    def run(self, seconds: float) -> float:
        """Step for so many seconds; steps per second."""
        return self._home.run(self._run(seconds))

    async def _run(self, seconds: float) -> float:
        began = perf_counter()

        async def stepped(step: Callable[[], Awaitable[Any]]) -> int:
            count = 0
            while perf_counter() < began + seconds:
                await step()
                count += 1
            return count

        counts = await asyncio.gather(*(stepped(step) for step, _ in self._sessions))
        return sum(counts) / (perf_counter() - began)

    def worker_mib(self) -> float:
        """It has no workers."""
        return 0.0

    def close(self) -> None:
        """End the sessions."""

        async def closed() -> None:
            await asyncio.gather(*(close() for _, close in self._sessions))

        self._home.run(closed())
        self._home.end()


class ThreadRow:
    """OpenEnv's blocking clients, each stepped by a thread."""

    note = ""

    def __init__(self, url: str, wait_s: float, sessions: int) -> None:
        self._clients = [_blocking(url) for _ in range(sessions)]
        self._pool = ThreadPoolExecutor(sessions)
        list(self._pool.map(lambda one: one.reset(wait_s=wait_s, length=ENDLESS), self._clients))

    def run(self, seconds: float) -> float:
        """Step for so many seconds; steps per second."""
        began = perf_counter()

        def stepped(client: Any) -> int:
            count = 0
            while perf_counter() < began + seconds:
                client.step(ACTION)
                count += 1
            return count

        return sum(self._pool.map(stepped, self._clients)) / (perf_counter() - began)

    def worker_mib(self) -> float:
        """It has no workers."""
        return 0.0

    def close(self) -> None:
        """End the sessions and the threads."""
        list(self._pool.map(lambda one: one.close(), self._clients))
        self._pool.shutdown()


class CollectorRow:
    """`collect_with_stats` over clients, ours or OpenEnv's; each turn plays whole episodes."""

    note = ""

    def __init__(self, url: str, wait_s: float, clients: int, mode: str, ours: bool) -> None:
        theirs = _blocking if mode == "thread" else _awaited
        make = HttpEnvClient if ours else theirs
        self._clients: list[Any] = [make(url) for _ in range(clients)]
        self._collector = ParallelRolloutCollector(mode, max_workers=clients)
        self._reset = {"wait_s": wait_s, "length": EPISODE_STEPS}
        # The first call opens the sessions.
        self._collector.collect_with_stats(self._clients, _say_hello, reset_kwargs=self._reset)

    def run(self, seconds: float) -> float:
        """Play episodes for so many seconds, as many on each client; steps per second."""
        rounds = max(1, round(seconds / (EPISODE_STEPS * self._reset["wait_s"])))
        began = perf_counter()
        _, stats = self._collector.collect_with_stats(
            self._clients, _say_hello, episodes=rounds * len(self._clients), reset_kwargs=self._reset
        )
        return stats.total_steps / (perf_counter() - began)

    def worker_mib(self) -> float:
        """It has no workers."""
        return 0.0

    def close(self) -> None:
        """End the sessions and the threads; clients that are awaited end with the collector."""
        self._collector.shutdown()
        for client in self._clients:
            if isinstance(client, HttpEnvClient) or hasattr(client, "async_client"):
                client.close()


def _blocking(url: str) -> Any:
    return _awaited(url).sync()


def _awaited(url: str) -> Any:
    from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

    return GenericEnvClient(base_url=url)


def _say_hello(observation: Any, done: bool) -> dict[str, Any]:
    return ACTION

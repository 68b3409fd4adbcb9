"""AsyncParallelExecutor: the episodes of several clients in one event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any
from weakref import WeakKeyDictionary

from envs.loop_thread import LoopThread, cancel_all
from envs.remote.rollouts.agents import AgentFn
from envs.remote.rollouts.answers import Client
from envs.remote.rollouts.by_client import ByClient, Claims
from envs.remote.rollouts.calls import LoopCalls
from envs.remote.rollouts.episode import Episode, play_episode
from envs.remote.rollouts.plan import EpisodeRunner, Plan
from envs.remote.rollouts.rollout import Rollout
from envs.remote.rollouts.threads import RolloutPool
from envs.remote.rollouts.throttle import LoopThrottle
from envs.remote.service_setup import Limits


class AsyncParallelExecutor:
    """Plays episodes in the event loop that awaits it; clients that block share `max_workers` threads.

    Connections of others' clients belong to a loop: use this in one that stays (`asyncio.run` once, around
    all, and `await executor.disconnect()` before its end), or use a collector, which has such a loop.
    """

    def __init__(
        self,
        max_workers: int = 4,
        *,
        max_in_flight: int | None = None,
        min_interval_s: float = 0.0,
        lock_agent: bool = False,
    ) -> None:
        self.max_workers = max_workers
        self._limits, self._lock_agent = Limits(max_in_flight, min_interval_s), lock_agent
        self._pools: list[RolloutPool] = []
        self._turns, self._claims = itertools.count(), Claims()
        # A client that blocks stays with the thread that called it first.
        self._lanes: ByClient[Executor] = ByClient(self._lane)
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = WeakKeyDictionary()

    async def collect_rollout_async(
        self,
        env_client: Client,
        agent_fn: AgentFn,
        max_steps: int = 1000,
        env_name: str = "unknown",
        *,
        seed: int | None = None,
        reset_kwargs: Mapping[str, Any] | None = None,
        retries: int = 0,
    ) -> Rollout:
        """Play one episode."""
        return await self.play(
            Episode(env_client, agent_fn, max_steps, env_name, 0, seed, reset_kwargs or {}, retries)
        )

    async def collect_rollouts_async(
        self,
        env_clients: Sequence[Client],
        agent_fn: AgentFn | Sequence[AgentFn],
        max_steps: int = 1000,
        env_names: Sequence[str] | None = None,
    ) -> list[Rollout]:
        """One episode of each client at the same time, in their order; an error ends all."""
        plan = Plan.of(env_clients, agent_fn, max_steps, env_names)
        tasks = [asyncio.create_task(self.play(plan.episode(i, i))) for i in range(plan.num_episodes)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await cancel_all(task for task in tasks if not task.done())

    async def play(self, episode: Episode) -> Rollout:
        """Play an episode in the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._calls:
            self._calls[loop] = LoopCalls(self._lanes, LoopThrottle(self._limits), self._lock_agent)
        with self._claims.claim(episode.client):
            return await play_episode(episode, self._calls[loop])

    async def disconnect(self) -> None:
        """End the sessions that clients have opened in the running loop, where a client has `disconnect`."""
        calls = self._calls.pop(asyncio.get_running_loop(), None)
        if calls is not None:
            await calls.disconnect()

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> None:
        """End the threads. Clients stay open."""
        for pool in self._pools:
            pool.shutdown(wait, timeout=timeout)

    def _lane(self, client: Client) -> Executor:
        number = next(self._turns)
        if number < self.max_workers:
            self._pools.append(RolloutPool(1))
        return self._pools[number % self.max_workers]


class LoopRunner(EpisodeRunner):
    """A loop that stays, for the episodes of one call: all clients play at the same time."""

    def __init__(self, executor: AsyncParallelExecutor, home: LoopThread) -> None:
        self._executor, self._home = executor, home
        self._tasks = set[asyncio.Task[Any]]()

    def start(self, episode: Episode) -> Future[Rollout]:
        return asyncio.run_coroutine_threadsafe(self._noted(episode), self._home.loop)

    def stop(self, playing: Sequence[Future[Rollout]]) -> None:
        if playing:
            self._home.run(self._cancel())

    async def _noted(self, episode: Episode) -> Rollout:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await self._executor.play(episode)
        finally:
            self._tasks.discard(task)

    async def _cancel(self) -> None:
        await cancel_all(self._tasks)

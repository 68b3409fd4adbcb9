"""ParallelEnvironmentExecutor: the episodes of several clients in threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from typing import Any, ParamSpec, Self, TypeVar

from envs.remote.rollouts.agents import AgentFn
from envs.remote.rollouts.answers import Client
from envs.remote.rollouts.by_client import ByClient, Claims
from envs.remote.rollouts.calls import ThreadCalls, blocking_face
from envs.remote.rollouts.episode import Episode, play_episode, without_a_loop
from envs.remote.rollouts.home_loop import HomeLoop
from envs.remote.rollouts.plan import EpisodeRunner, Plan, in_order
from envs.remote.rollouts.rollout import Rollout
from envs.remote.rollouts.throttle import ThreadThrottle
from envs.remote.service_setup import Limits

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class RolloutPool(ThreadPoolExecutor):
    """A pool of threads that can be shut down with a `timeout`."""

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers, "rollouts")
        self._unfinished = set[Future[Any]]()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """End the threads; those that are busy after `timeout` seconds are left to end by themselves."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        if not wait:
            return
        late = wait_for_all(list(self._unfinished), timeout).not_done
        if late:
            _log.warning("%d calls go on after %g s: their clients do not answer.", len(late), timeout)
        else:
            super().shutdown(wait=True)


class ParallelEnvironmentExecutor:
    """Plays episodes in threads, as many at the same time as there are threads.

    `max_in_flight` and `min_interval_s` throttle (`throttle.py`); with `lock_agent` one thread at a time is
    in the agent.
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
        self.executor = RolloutPool(max_workers)
        self._throttle = ThreadThrottle(Limits(max_in_flight, min_interval_s))
        self._agent_lock = threading.Lock() if lock_agent else None
        self._faces, self._claims = ByClient(blocking_face), Claims()
        self._ending, self._loop = threading.Event(), HomeLoop("coroutines of clients")

    def collect_rollout(
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
        """Play one episode in this thread; so `executor.submit(executor.collect_rollout, ...)` works."""
        return self.play(
            Episode(env_client, agent_fn, max_steps, env_name, 0, seed, reset_kwargs or {}, retries)
        )

    def collect_rollouts_parallel(
        self,
        env_clients: Sequence[Client],
        agent_fn: AgentFn | Sequence[AgentFn],
        max_steps: int = 1000,
        env_names: Sequence[str] | None = None,
    ) -> list[Rollout]:
        """One episode of each client, in their order; an error ends all."""
        return in_order(Plan.of(env_clients, agent_fn, max_steps, env_names), ThreadRunner(self))

    def play(self, episode: Episode, *stops: threading.Event) -> Rollout:
        """Play an episode in this thread, until its end or until one of these is set."""
        calls = ThreadCalls(
            self._faces, self.wait_for, self._throttle, self._agent_lock, self._ending, *stops
        )
        with self._claims.claim(episode.client):
            return without_a_loop(play_episode(episode, calls))

    def wait_for(self, work: Awaitable[T]) -> T:
        """What a client's or an agent's coroutine returns, awaited in a loop that stays."""

        async def awaited() -> T:
            return await work

        return self._loop.run(awaited())

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> None:
        """End the threads: episodes stop at their next call. Clients stay open."""
        self._ending.set()
        self.executor.shutdown(wait, timeout=timeout)
        self._loop.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class ThreadRunner(EpisodeRunner):
    """The threads of an executor, for the episodes of one call."""

    def __init__(self, executor: ParallelEnvironmentExecutor) -> None:
        self._executor, self._stop = executor, threading.Event()

    def start(self, episode: Episode) -> Future[Rollout]:
        return self._executor.executor.submit(self._executor.play, episode, self._stop)

    def stop(self, playing: Sequence[Future[Rollout]]) -> None:
        self._stop.set()
        wait_for_all([future for future in playing if not future.cancel()])

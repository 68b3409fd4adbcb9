"""How clients of any kind are called: from a thread, which blocks, or in an event loop, which goes on.

the client has                         in a thread                      in an event loop
plain reset and step                   called there                     called in a thread of its own
coroutines                             run in a loop that stays         awaited
coroutines, and `sync()`               its blocking face is called      awaited
reset_async and step_async             its plain reset is called        these are awaited
both, by who calls (OpenEnv >= 0.4)    called there: it blocks          called and awaited
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from time import perf_counter
from typing import Any

from envs.remote.protocol import RemoteError
from envs.remote.rollouts.agents import ask
from envs.remote.rollouts.answers import Client, Observed, reset_arguments
from envs.remote.rollouts.by_client import ByClient
from envs.remote.rollouts.episode import Calls, Episode
from envs.remote.rollouts.throttle import LoopThrottle, ThreadThrottle

# How long a client may take to say goodbye after an error.
PARTING_S = 5.0


class ThreadCalls(Calls):
    """Calls that block the thread in which the episode is played."""

    def __init__(
        self,
        faces: ByClient[Client],
        wait_for: Callable[[Awaitable[Any]], Any],
        throttle: ThreadThrottle,
        agent_lock: threading.Lock | None,
        *stops: threading.Event,
    ) -> None:
        self._faces, self._wait_for, self._throttle = faces, wait_for, throttle
        self._agent_lock, self._stops = agent_lock or nullcontext(), stops

    async def reset(self, episode: Episode) -> tuple[Any, float]:
        reset = self._faces[episode.client].reset
        arguments = reset_arguments(reset, episode.seed, episode.reset_kwargs)
        return self._call(episode.client, lambda: reset(**arguments))

    async def step(self, episode: Episode, action: Any) -> tuple[Any, float]:
        return self._call(episode.client, lambda: self._faces[episode.client].step(action))

    async def act(self, episode: Episode, seen: Observed, done: bool) -> tuple[Any, float]:
        with self._agent_lock:
            began = perf_counter()
            action = self._finished(ask(episode.agent, seen.observation, done, seen.reward))
            return action, perf_counter() - began

    async def part(self, episode: Episode) -> None:
        with suppress(Exception):  # it is in doubt anyway, and may raise anything
            self._finished(_goodbye(self._faces[episode.client], "disconnect", "close")())

    def _call(self, client: Client, function: Callable[[], Any]) -> tuple[Any, float]:
        with self._throttle.turn(client):
            # A call that is stopped ends before its next message, as a task does that is cancelled.
            if any(stop.is_set() for stop in self._stops):
                raise asyncio.CancelledError
            began = perf_counter()
            return self._finished(function()), perf_counter() - began

    def _finished(self, value: Any) -> Any:
        return self._wait_for(value) if inspect.isawaitable(value) else value


class LoopCalls(Calls):
    """Calls that are awaited in the running loop, or that block a thread which is the client's own."""

    def __init__(self, lanes: ByClient[Executor], throttle: LoopThrottle, lock_agent: bool) -> None:
        self._lanes, self._throttle = lanes, throttle
        # Those that have been called in this loop, by their identity.
        self._seen: dict[int, Client] = {}
        self._agent_lock = asyncio.Lock() if lock_agent else nullcontext()

    async def reset(self, episode: Episode) -> tuple[Any, float]:
        reset, blocks = _method(episode.client, "reset")
        if not blocks:
            self._seen[id(episode.client)] = episode.client
        arguments = reset_arguments(reset, episode.seed, episode.reset_kwargs)
        return await self._call(episode.client, lambda: reset(**arguments), blocks)

    async def step(self, episode: Episode, action: Any) -> tuple[Any, float]:
        step, blocks = _method(episode.client, "step")
        return await self._call(episode.client, lambda: step(action), blocks)

    async def act(self, episode: Episode, seen: Observed, done: bool) -> tuple[Any, float]:
        async with self._agent_lock:
            began = perf_counter()
            action = await _awaited(ask(episode.agent, seen.observation, done, seen.reward))
            return action, perf_counter() - began

    async def part(self, episode: Episode) -> None:
        await self._part(episode.client, "disconnect", "close_async", "close")

    async def disconnect(self) -> None:
        """End the sessions that live in this loop only, as those of OpenEnv's clients do."""
        await asyncio.gather(*(self._part(client, "disconnect") for client in self._seen.values()))

    async def _part(self, client: Client, *names: str) -> None:
        _, blocks = _method(client, "reset")
        # It is in doubt anyway, and may raise anything.
        with suppress(Exception):
            async with asyncio.timeout(PARTING_S):
                await self._made(client, _goodbye(client, *names), blocks)

    async def _call(self, client: Client, function: Callable[[], Any], blocks: bool) -> tuple[Any, float]:
        async with self._throttle.turn(client):
            began = perf_counter()
            return await self._made(client, function, blocks), perf_counter() - began

    async def _made(self, client: Client, function: Callable[[], Any], blocks: bool) -> Any:
        if blocks:
            return await asyncio.get_running_loop().run_in_executor(self._lanes[client], function)
        return await _awaited(function())


def blocking_face(client: Client) -> Client:
    """What of a client is called in threads: itself, or what its `sync()` returns."""
    reset = getattr(client, "reset", None)
    if (reset is None or inspect.iscoroutinefunction(reset)) and callable(getattr(client, "sync", None)):
        return client.sync()
    if reset is None or not callable(getattr(client, "step", None)):
        raise RemoteError(f"A {type(client).__name__} is no client: it has no reset and step.")
    return client


def _method(client: Client, name: str) -> tuple[Callable[..., Any], bool]:
    """(the method for an event loop, whether it blocks)."""
    own = getattr(client, f"{name}_async", None)
    if inspect.iscoroutinefunction(own):
        return own, False
    method = getattr(client, name, None)
    if not callable(method):
        raise RemoteError(f"A {type(client).__name__} is no client: it has no {name}.")
    # Who can be entered by `async with` answers to a loop by something to be awaited.
    return method, not (inspect.iscoroutinefunction(method) or hasattr(client, "__aenter__"))


def _goodbye(client: Client, *names: str) -> Callable[[], Any]:
    """What ends a client's session: its first method of these (`close` may end more, such as a container)."""
    methods = (getattr(client, name, None) for name in names)
    return next((method for method in methods if callable(method)), lambda: None)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value

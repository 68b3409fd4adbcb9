"""Agents of scripts: `agent_fn(observation, done) -> action`, for all clients, for each, or in batches.

A function may say more of itself, as `player.as_agent_fn()` does:

    follows_episodes   it remembers the episode: it belongs to one client, and is shown the last observation
                       of an episode too, with `done=True`, where its answer is ignored
    reads_rewards      it is called as `agent_fn(observation, done, reward=...)`
    reset()            an episode was broken off: forget it

Any of them may be a coroutine function, which is awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from utils.options import OptionError

AgentFn = Callable[..., Any]
BatchAgentFn = Callable[[list[Any]], Any]


def agents_of(agent_fn: AgentFn | Sequence[AgentFn], clients: int) -> list[AgentFn]:
    """The agent of each client; one that remembers its episode cannot be that of two."""
    agents = [agent_fn] * clients if callable(agent_fn) else list(agent_fn)
    if len(agents) != clients:
        raise OptionError(f"agent_fn has {len(agents)} functions for {clients} clients: give one for each.")
    following = [id(agent) for agent in agents if getattr(agent, "follows_episodes", False)]
    if len(set(following)) < len(following):
        raise OptionError(
            "This agent remembers its episode, and several clients would share its memory: give a list with "
            "one for each client, as in agent_fn=[load_agent(RUN).as_agent_fn() for _ in clients]."
        )
    return agents


def ask(agent: AgentFn, observation: Any, done: bool, reward: float) -> Any:
    """The action, or what it has to be awaited from."""
    if getattr(agent, "reads_rewards", False):
        return agent(observation, done, reward=reward)
    return agent(observation, done)


class ThreadRounds:
    """An agent that acts for all threads which wait for an action at the same time.

    There is one round at a time. Whoever is next computes for all that have come meanwhile, so rounds grow
    with the number of environments and with the time that the agent takes.
    """

    def __init__(self, batch_agent_fn: BatchAgentFn, wait_for: Callable[[Awaitable[Any]], Any]) -> None:
        self._function, self._wait_for = batch_agent_fn, wait_for
        self._round, self._queue = threading.Lock(), threading.Lock()
        self._waiting: list[tuple[Any, Future[Any]]] = []

    def __call__(self, observation: Any, done: bool) -> Any:
        action: Future[Any] = Future()
        with self._queue:
            self._waiting.append((observation, action))
        with self._round:
            if not action.done():
                self._play()
        return action.result()

    def _play(self) -> None:
        with self._queue:
            waiting, self._waiting = self._waiting, []
        try:
            for (_, action), chosen in zip(waiting, self._chosen(waiting), strict=True):
                action.set_result(chosen)
        except BaseException as error:  # noqa: BLE001 - those who wait for the action raise it
            for _, action in waiting:
                if not action.done():
                    action.set_exception(error)

    def _chosen(self, waiting: list[tuple[Any, Future[Any]]]) -> list[Any]:
        actions = self._function([observation for observation, _ in waiting])
        if inspect.isawaitable(actions):
            actions = self._wait_for(actions)
        return checked_batch(actions, len(waiting))


class LoopRounds:
    """The same for coroutines: a round acts for all whose answers have come when it begins."""

    def __init__(self, batch_agent_fn: BatchAgentFn) -> None:
        self._function = batch_agent_fn
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._playing: asyncio.Task[None] | None = None

    async def __call__(self, observation: Any, done: bool) -> Any:
        action: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((observation, action))
        if self._playing is None or self._playing.done():
            self._playing = asyncio.create_task(self._play())
        return await action

    async def _play(self) -> None:
        while self._waiting:
            # Others whose answers are here already come before this goes on.
            await asyncio.sleep(0)
            waiting, self._waiting = self._waiting, []
            try:
                actions = self._function([observation for observation, _ in waiting])
                if inspect.isawaitable(actions):
                    actions = await actions
                chosen = checked_batch(actions, len(waiting))
            except Exception as error:  # noqa: BLE001 - those who wait for the action raise it
                for _, action in waiting:
                    if not action.done():
                        action.set_exception(error)
                continue
            for (_, action), one in zip(waiting, chosen, strict=True):
                if not action.done():  # its episode may have been stopped meanwhile
                    action.set_result(one)


def checked_batch(actions: Any, size: int) -> list[Any]:
    """One action for each observation, or a sentence."""
    chosen = list(actions)
    if len(chosen) != size:
        raise OptionError(f"batch_agent_fn returned {len(chosen)} actions for {size} observations.")
    return chosen

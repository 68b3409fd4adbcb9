"""One episode of one client, from its reset to its end, written once for threads and for coroutines.

It is a coroutine, and `Calls` says how a client and an agent are called. In a thread every call blocks, so
the coroutine never waits and needs no event loop (`without_a_loop`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from envs.remote.rollouts.agents import AgentFn
from envs.remote.rollouts.answers import Client, Observed, read_reset, read_step
from envs.remote.rollouts.rollout import Rollout, told_of

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Episode:
    """What is to be played."""

    client: Client
    agent: AgentFn
    max_steps: int = 1000
    env_name: str = "unknown"
    index: int = 0
    seed: int | None = None
    reset_kwargs: Mapping[str, Any] = field(default_factory=dict)
    # How often it may be begun again. A step is never repeated.
    retries: int = 0


class Calls(ABC):
    """How clients and agents are called; each call returns (what came of it, how many seconds it took)."""

    @abstractmethod
    async def reset(self, episode: Episode) -> tuple[Any, float]:
        """The answer to the reset of an episode."""

    @abstractmethod
    async def step(self, episode: Episode, action: Any) -> tuple[Any, float]:
        """The answer to a step."""

    @abstractmethod
    async def act(self, episode: Episode, seen: Observed, done: bool) -> tuple[Any, float]:
        """The agent's action."""

    @abstractmethod
    async def part(self, episode: Episode) -> None:
        """End the client's session, if it can, so that its next reset opens another; raises nothing."""


async def play_episode(episode: Episode, calls: Calls) -> Rollout:
    """Play the episode; after an error it is begun anew in a new session, as often as it may be."""
    attempt = 1
    while True:
        try:
            rollout = await _play_once(episode, calls)
        except BaseException as error:
            # Whatever stopped it, nobody knows what the client will be answered next.
            await calls.part(episode)
            if getattr(episode.agent, "follows_episodes", False):
                episode.agent.reset()  # pyright: ignore[reportFunctionMemberAccess]
            if not isinstance(error, Exception):
                raise
            if attempt > episode.retries:
                told_of(error, episode.index, episode.env_name)
                raise
            # Its text alone: an error keeps what its frames held alive for as long as a log keeps it.
            reason = f"{type(error).__name__}: {error}"
            _log.warning("%s: %s; episode %d begins anew.", episode.env_name, reason, episode.index)
            attempt += 1
        else:
            rollout.attempts = attempt
            return rollout


async def _play_once(episode: Episode, calls: Calls) -> Rollout:
    observations: list[Any] = []
    actions: list[Any] = []
    rewards: list[float] = []
    dones: list[bool] = []
    answer, env_s = await calls.reset(episode)
    seen, agent_s = read_reset(answer), 0.0
    while not seen.ended and len(actions) < episode.max_steps:
        # 1. The action is chosen on the observation that came last.
        action, seconds = await calls.act(episode, seen, False)
        agent_s += seconds
        observations.append(seen.observation)
        actions.append(action)
        # 2. What comes of it.
        answer, seconds = await calls.step(episode, action)
        env_s += seconds
        seen = read_step(answer)
        rewards.append(seen.reward)
        dones.append(seen.ended)
    # 3. An agent that remembers the episode is shown its end.
    if actions and getattr(episode.agent, "follows_episodes", False):
        await calls.act(episode, seen, True)
    return Rollout(
        observations,
        actions,
        rewards,
        dones,
        episode_return=sum(rewards),
        episode_length=len(actions),
        env_name=episode.env_name,
        final_observation=seen.observation,
        terminated=seen.terminated,
        truncated=seen.truncated or not seen.ended,
        metadata=seen.metadata,
        seed=episode.seed,
        index=episode.index,
        env_s=env_s,
        agent_s=agent_s,
    )


def without_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("in a thread every call blocks")

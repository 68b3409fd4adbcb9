"""Plan: which episodes are to be played, and the loop that hands them to clients as these become free."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypedDict

from envs.remote.rollouts.agents import AgentFn, agents_of
from envs.remote.rollouts.answers import Client
from envs.remote.rollouts.episode import Episode
from envs.remote.rollouts.rollout import Failure, Rollout
from utils.options import OptionError

# For all episodes, or one for each.
ResetArguments = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class PlanOptions(TypedDict, total=False):
    """What a plan may say besides: see `ParallelRolloutCollector.collect_with_stats`."""

    episodes: int | None
    seeds: Sequence[int] | None
    reset_kwargs: ResetArguments
    retries: int


@dataclass(frozen=True)
class Plan:
    """The episodes of one call: number i is played by client i, and by a free one beyond their number."""

    clients: Sequence[Client]
    agents: Sequence[AgentFn]
    env_names: Sequence[str]
    num_episodes: int
    seeds: Sequence[int] | None = None
    reset_kwargs: ResetArguments = None
    max_steps: int = 1000
    retries: int = 0

    @classmethod
    def of(
        cls,
        clients: Sequence[Client],
        agent_fn: AgentFn | Sequence[AgentFn],
        max_steps: int,
        env_names: Sequence[str] | None,
        *,
        episodes: int | None = None,
        seeds: Sequence[int] | None = None,
        reset_kwargs: ResetArguments = None,
        retries: int = 0,
    ) -> Plan:
        """The plan of these arguments; what cannot be meant is refused before anything is called."""
        clients = list(clients)
        _check_clients(clients)
        count = len(clients) if episodes is None else episodes
        names = [f"env_{i}" for i in range(len(clients))] if env_names is None else list(env_names)
        for what, number, least in (
            ("max_steps", max_steps, 1),
            ("episodes", count, 1),
            ("retries", retries, 0),
        ):
            if number < least:
                raise OptionError(f"{what}={number} must be at least {least}.")
        several = None if reset_kwargs is None or isinstance(reset_kwargs, Mapping) else reset_kwargs
        for what, given, wanted in (
            ("env_names", names, len(clients)),
            ("seeds", seeds, count),
            ("reset_kwargs", several, count),
        ):
            if given is not None and len(given) != wanted:
                per = "client" if what == "env_names" else "episode"
                raise OptionError(f"{what} has {len(given)} entries, and one for each {per} is {wanted}.")
        agents = agents_of(agent_fn, len(clients))
        return cls(clients, agents, names, count, seeds, reset_kwargs, max_steps, retries)

    def episode(self, index: int, client: int) -> Episode:
        """The episode of this number, as this client plays it."""
        kwargs = {} if self.reset_kwargs is None else self.reset_kwargs
        return Episode(
            self.clients[client],
            self.agents[client],
            self.max_steps,
            self.env_names[client],
            index,
            None if self.seeds is None else self.seeds[index],
            kwargs if isinstance(kwargs, Mapping) else kwargs[index],
            self.retries,
        )


class EpisodeRunner(ABC):
    """Where the episodes of one call are played at the same time."""

    @abstractmethod
    def start(self, episode: Episode) -> Future[Rollout]:
        """Begin an episode."""

    @abstractmethod
    def stop(self, playing: Sequence[Future[Rollout]]) -> None:
        """End these episodes where they are; when this returns, nothing of them goes on."""


def outcomes(plan: Plan, runner: EpisodeRunner) -> Generator[Rollout | Failure, None, None]:
    """The episodes of a plan as they end.

    Each that has ended makes room for one more, and that is begun before the ended one is handed out: so
    clients play on while a rollout is used, and no more of them wait to be used than there are clients.
    """
    free, unplayed = deque(range(len(plan.clients))), deque(range(plan.num_episodes))
    playing: dict[Future[Rollout], tuple[int, int]] = {}
    ended: SimpleQueue[Future[Rollout]] = SimpleQueue()

    def start_more() -> None:
        while free and unplayed:
            index, client = unplayed.popleft(), free.popleft()
            future = runner.start(plan.episode(index, client))
            playing[future] = index, client
            future.add_done_callback(ended.put)

    try:
        start_more()
        while playing:
            future = ended.get()
            index, client = playing.pop(future)
            free.append(client)
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupt, which ends everything
            start_more()
            yield future.result() if error is None else Failure(index, plan.env_names[client], error)
    finally:
        runner.stop(list(playing))


def _check_clients(clients: Sequence[Client]) -> None:
    if not clients:
        raise OptionError("There are no clients to play with.")
    first: dict[int, int] = {}
    for i, client in enumerate(clients):
        if id(client) in first:
            raise OptionError(
                f"Client {i} is client {first[id(client)]} once more: two episodes at once over one "
                "connection would read each other's answers, so make a client for each."
            )
        first[id(client)] = i


def in_order(plan: Plan, runner: EpisodeRunner) -> list[Rollout]:
    """All rollouts of a plan by their numbers; the first error ends the others and is raised."""
    rollouts, _ = all_of(plan, runner, drop=False)
    return rollouts


def all_of(plan: Plan, runner: EpisodeRunner, *, drop: bool) -> tuple[list[Rollout], list[Failure]]:
    """(rollouts, failures) of a plan, each by their numbers; without `drop` the first error is raised."""
    rollouts: list[Rollout] = []
    failures: list[Failure] = []
    with closing(outcomes(plan, runner)) as ended:
        for outcome in ended:
            if isinstance(outcome, Rollout):
                rollouts.append(outcome)
            elif drop:
                failures.append(outcome)
            else:
                raise outcome.told()
    rollouts.sort(key=lambda one: one.index)
    failures.sort(key=lambda one: one.index)
    return rollouts, failures

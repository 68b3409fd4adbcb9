"""ParallelRolloutCollector: the episodes of several clients at the same time, with their numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Self, Unpack

from envs.remote.rollouts.agents import AgentFn, BatchAgentFn, LoopRounds, ThreadRounds
from envs.remote.rollouts.answers import Client
from envs.remote.rollouts.coroutines import AsyncParallelExecutor, LoopRunner
from envs.remote.rollouts.home_loop import shared_loop
from envs.remote.rollouts.plan import EpisodeRunner, Plan, PlanOptions, all_of, outcomes
from envs.remote.rollouts.rollout import ParallelRolloutStats, Rollout
from envs.remote.rollouts.threads import ParallelEnvironmentExecutor, ThreadRunner
from utils.options import OptionError, nearest

_log = logging.getLogger(__name__)

MODES = {"thread": ParallelEnvironmentExecutor, "async": AsyncParallelExecutor}
ON_ERROR = ("raise", "drop")


class ParallelRolloutCollector:
    """Collects rollouts from clients of any kind, in threads or in an event loop of its own.

        with ParallelRolloutCollector(max_workers=8) as collector:
            rollouts, stats = collector.collect_with_stats(clients, agent_fn)

    `max_workers` are the episodes at the same time in mode "thread". In mode "async" all clients play at the
    same time, and those that block share so many threads. `max_in_flight` bounds the calls under way to one
    server (clients with the same `base_url`), `min_interval_s` parts two calls of one client, and with
    `lock_agent` the agent acts for one at a time.
    """

    def __init__(
        self,
        execution_mode: str = "thread",
        max_workers: int = 4,
        *,
        max_in_flight: int | None = None,
        min_interval_s: float = 0.0,
        lock_agent: bool = False,
    ) -> None:
        if execution_mode not in MODES:
            raise OptionError(f"execution_mode={execution_mode!r} is none.{nearest(execution_mode, MODES)}")
        for name, number in (("max_workers", max_workers), ("max_in_flight", max_in_flight)):
            if number is not None and number < 1:
                raise OptionError(f"{name}={number} must be at least 1.")
        self.executor = MODES[execution_mode](
            max_workers, max_in_flight=max_in_flight, min_interval_s=min_interval_s, lock_agent=lock_agent
        )
        # In mode "async" all runs in one loop: that of our own clients, whose sessions outlive this.
        self._home = shared_loop() if execution_mode == "async" else None
        self._ended = False

    def collect_with_stats(
        self,
        env_clients: Sequence[Client],
        agent_fn: AgentFn | Sequence[AgentFn] | None = None,
        max_steps: int = 1000,
        env_names: Sequence[str] | None = None,
        *,
        batch_agent_fn: BatchAgentFn | None = None,
        on_error: str = "raise",
        **options: Unpack[PlanOptions],
    ) -> tuple[list[Rollout], ParallelRolloutStats]:
        """(rollouts by their numbers, what they are together).

        It plays one episode of each client, or `episodes` of them: then a client that is free plays the
        next, and a slow environment plays fewer. `agent_fn(observation, done)` may be a list with one for
        each client; `batch_agent_fn(observations)` acts for all that wait. `seeds` has one for each episode,
        and so may `reset_kwargs`. An episode that fails is begun anew up to `retries` times; then its error
        is raised, or with `on_error="drop"` told in `stats.failures`.
        """
        drop, agent = _drops(on_error), self._agent(agent_fn, batch_agent_fn)
        plan = Plan.of(env_clients, agent, max_steps, env_names, **options)
        rollouts, failures = all_of(plan, self._runner(), drop=drop)
        return rollouts, ParallelRolloutStats.of(rollouts, failures)

    def stream(
        self,
        env_clients: Sequence[Client],
        agent_fn: AgentFn | Sequence[AgentFn] | None = None,
        max_steps: int = 1000,
        env_names: Sequence[str] | None = None,
        *,
        batch_agent_fn: BatchAgentFn | None = None,
        on_error: str = "raise",
        **options: Unpack[PlanOptions],
    ) -> Iterator[Rollout]:
        """Yield the same rollouts as they end; no more are kept than there are clients.

        With `on_error="drop"` the log tells of an episode that failed. Closing the iterator ends the rest.
        """
        drop, agent = _drops(on_error), self._agent(agent_fn, batch_agent_fn)
        return _rollouts(Plan.of(env_clients, agent, max_steps, env_names, **options), self._runner(), drop)

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> None:
        """End threads and loop, after `timeout` seconds also where a client does not answer.

        Clients stay open for whoever made them, but for those of others which live in the collector's loop:
        these are disconnected, and their next reset connects them again.
        """
        self._ended = True
        if self._home is not None and isinstance(self.executor, AsyncParallelExecutor):
            self._home.run(self.executor.disconnect())
        self._home = None
        self.executor.shutdown(wait, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _runner(self) -> EpisodeRunner:
        if self._ended:
            raise RuntimeError("This collector has been shut down: make another one.")
        if isinstance(self.executor, ParallelEnvironmentExecutor):
            return ThreadRunner(self.executor)
        assert self._home is not None
        return LoopRunner(self.executor, self._home.thread)

    def _agent(
        self, agent_fn: AgentFn | Sequence[AgentFn] | None, batch_agent_fn: BatchAgentFn | None
    ) -> AgentFn | Sequence[AgentFn]:
        """The one of the two that is given."""
        if batch_agent_fn is None and agent_fn is not None:
            return agent_fn
        if batch_agent_fn is None or agent_fn is not None:
            raise OptionError("Give agent_fn, or batch_agent_fn for many observations at once, and not both.")
        if isinstance(self.executor, ParallelEnvironmentExecutor):
            return ThreadRounds(batch_agent_fn, self.executor.wait_for)
        return LoopRounds(batch_agent_fn)


def _drops(on_error: str) -> bool:
    if on_error not in ON_ERROR:
        raise OptionError(f"on_error={on_error!r} is none.{nearest(on_error, ON_ERROR)}")
    return on_error == "drop"


def _rollouts(plan: Plan, runner: EpisodeRunner, drop: bool) -> Iterator[Rollout]:
    with closing(outcomes(plan, runner)) as ended:
        for outcome in ended:
            if isinstance(outcome, Rollout):
                yield outcome
            elif drop:
                _log.warning("Episode %d of %s is left out: %s", *outcome.shown)
            else:
                raise outcome.told()

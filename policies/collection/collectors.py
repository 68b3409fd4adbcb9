"""Collectors: what plays the trials of a run, an environment of this process or actors elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from buffers.replay import Replay
from envs.parallel_env_manager import ParallelEnvManager
from policies.agents.agent import Agent
from policies.collection.collector import Collector, LocalCollector
from policies.collection.remote.collector import RemoteCollector
from policies.collection.remote.pool import ActorPool
from policies.collection.wave import WaveResult
from policies.run.context import RunContext, RunEnvironments
from policies.run.progress import RunProgress
from utils.stopwatch import Stopwatch


@dataclass(frozen=True)
class Collectors:
    """Makes the collectors of a run, which all number their trials by its progress."""

    context: RunContext
    progress: RunProgress
    environments: RunEnvironments
    # None: the run collects in its own environments.
    actors: ActorPool | None
    watch: Stopwatch

    def make(
        self,
        agent: Agent,
        sink: Replay,
        tick: Callable[[WaveResult], bool],
        *,
        env: ParallelEnvManager | None = None,
        random: bool = False,
    ) -> Collector:
        """What plays the next trials with this agent into this buffer; an `env` is obeyed."""
        if self.actors is not None and env is None:
            return RemoteCollector(self.context, self.progress, self.actors, agent, sink, tick, random)
        env = self.environments.training if env is None else env
        return LocalCollector(self.context, self.progress, env, agent, sink, self.watch, tick, random)

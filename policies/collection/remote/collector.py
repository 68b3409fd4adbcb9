"""RemoteCollector: a wave is divided among actors, and becomes one wave of the run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from torch import Tensor

from buffers.replay import Replay
from policies.agents.agent import Agent
from policies.collection.remote.actor import PlayedWave, WaveOrder
from policies.collection.remote.pool import ActorPool
from policies.collection.wave import WaveResult
from policies.run.context import RunContext
from policies.run.progress import RunProgress


@dataclass(frozen=True)
class RemoteCollector:
    """Collects waves with several actors, and stores them in `sink`.

    A wave is a function of the agent's parameters, the trials' numbers, and how many actors there are. The
    order in which the actors are done decides nothing.
    """

    context: RunContext
    progress: RunProgress
    pool: ActorPool
    agent: Agent
    sink: Replay
    # Asked while the actors play; returns whether to stop.
    tick: Callable[[WaveResult], bool]
    random_actions: bool = False

    def collect(self, most: int, budget: int | None = None) -> WaveResult:
        """Play at most so many trials; none is started once `budget` env steps have been taken."""
        env, spec = self.context.config.env, self.context.family.spec
        nothing = WaveResult.empty(0, env.max_rollouts_per_task, spec.task_dim)
        if most < 0:
            raise ValueError(f"{most} trials cannot be collected.")
        if not most:
            return nothing

        # 1. Each actor gets a part of the trials, as even as can be, and a part of the env steps. Numbers are
        #    set aside for all the trials that it may start, so that no two trials ever have the same.
        counters, actors = self.progress.counters, min(self.pool.actors, most)
        shares = [most // actors + (actor < most % actors) for actor in range(actors)]
        first = counters.warmup_trials if self.random_actions else counters.next_number
        firsts = accumulate(shares[:-1], initial=first)
        weights = {
            # A normaliser's part is no tensor, and on the CPU already.
            name: value.detach().cpu() if isinstance(value, Tensor) else value
            for name, value in self.agent.state_dict().items()
        }
        learned = self.progress.curriculum.state_dict()
        part = None if budget is None else -(-budget // actors)
        orders = [
            WaveOrder(weights, learned, number, share, part, self.random_actions)
            for number, share in zip(firsts, shares, strict=True)
        ]

        # 2. They play; what one of them has begun is forgotten with the actor.
        waves = self.pool.play(orders, lambda: self.tick(nothing))

        # 3. Their trials follow each other in the order of their numbers, as one wave of the sink.
        wave = PlayedWave.joined(waves, self.sink.num_added)
        self.sink.extend(wave.segment)
        return replace(wave.result, left_out=most - len(wave.result.dropped))

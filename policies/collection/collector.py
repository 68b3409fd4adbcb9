"""Collection: waves of a run's next trials, and what follows from a wave once it is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from buffers.replay import Replay
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from policies.agents.agent import Agent
from policies.collection.actors import Actor, AgentActor, RandomActor, ShadowMemory
from policies.collection.wave import WavePlan, WaveResult, run_wave
from policies.curriculum.base import Curriculum, PlayedTrials
from policies.run.context import LearningParts, RunContext
from policies.run.progress import RunProgress
from utils.seeding import Phase
from utils.stopwatch import Stopwatch


class Collector(Protocol):
    """Plays the next trials of a run with one agent, into one buffer."""

    def collect(self, most: int, budget: int | None = None) -> WaveResult:
        """Play at most so many trials; none is started once `budget` env steps have been taken."""
        ...


@dataclass(frozen=True)
class LocalCollector:
    """Collects waves in this process: plays the next trials of a run in `env`, and stores them in `sink`.

    A wave is a function of the agent's parameters and the trials' numbers. `collect` changes nothing of the
    run but its sink; that a wave counts is the business of `account_for`.
    """

    context: RunContext
    progress: RunProgress
    env: ParallelEnvManager
    agent: Agent
    sink: Replay
    watch: Stopwatch
    # It sees the wave grow once a round, and stops it by returning True.
    tick: Callable[[WaveResult], bool]
    random_actions: bool = False

    def collect(self, most: int, budget: int | None = None) -> WaveResult:
        """Play at most so many trials; none is started once `budget` env steps have been taken."""
        # 1. Refuse what cannot be stored, and skip a wave without trials.
        rows, room = self.env.rows_per_trial, self.sink.rows_per_trial
        if rows > room:
            raise ValueError(
                f"A trial of this environment has up to {rows} rows, and the replay has room for {room}."
            )
        if most < 0:
            raise ValueError(f"{most} trials cannot be collected.")
        if not most:
            return WaveResult.empty(0, self.env.episodes_per_trial, self.env.spec.task_dim)

        # 2. The trials are numbered on from those that the run has had, in a phase of its own for the random
        #    pool: so a resumed run plays the same ones.
        config, counters = self.context.config, self.progress.counters
        phase, first, task = Phase.TRAIN, counters.next_number, self.progress.curriculum.draw
        if self.random_actions:  # nothing is learned from what random actions reach, so nothing chooses here
            phase, first = Phase.WARMUP, counters.warmup_trials
            task = partial(self.context.training_tasks.uniform, phase=phase)
        plan = WavePlan(config.seed, phase, first, most, task, budget)

        # 3. Play them, each to its end. The buffer gets a trial only when the whole wave is complete.
        return run_wave(self.env, self._actor(), plan, sink=self.sink, watch=self.watch, tick=self.tick)

    def _actor(self) -> Actor:
        # On the run's own device; a copy of the agent may be passed, which is as old as it has to be.
        agent = AgentActor(self.agent, self.context.device)
        if not self.random_actions:
            return agent
        random = RandomActor(self.env.single_action_space)
        # Windows that start from stored states need them in the random pool, too.
        return ShadowMemory(random, reads=agent) if self.sink.state_every else random


def account_for(
    result: WaveResult,
    context: RunContext,
    parts: LearningParts,
    progress: RunProgress,
    *,
    first: int,
    warmup: bool,
) -> None:
    """Count a wave that is in the buffer from trial number `first` on, and let the normaliser learn from it.

    On-policy the normaliser learns from a wave only after its update (policies/run/updates.py), apart from
    the random pool, which has no update.
    """
    # Single trials may be given up after faults. With none left, something is wrong in general.
    if len(result.dropped) and result.dropped.all():
        raise WorkerError(
            f"All {len(result.dropped)} trials of a collection were given up after faults: "
            "there is nothing to learn from."
        )

    # 1. The counters decide what the run does next, and how the next trials are numbered.
    progress.counters.count(result, warmup=warmup)

    # 2. Without trials there is nothing to learn. The curriculum learns from trials of the agent alone.
    if result.dropped.all():
        return
    if not warmup:
        progress.curriculum.learn(_played(result, parts, progress.curriculum, first))
    if parts.agent.normaliser is None:
        return

    # 3. Running means and deviations take in each row once, in the order of the trials' numbers.
    if warmup or not context.needs.on_policy:
        rows = parts.buffer.whole(first, parts.buffer.num_added)
        parts.agent.update_normaliser(rows, context.config.algorithm.discount)


def _played(result: WaveResult, parts: LearningParts, curriculum: Curriculum, first: int) -> PlayedTrials:
    """What a curriculum learns from: the trials of a wave that is in the buffer from number `first` on."""
    surprise, whole = None, ~result.dropped
    if curriculum.reads_surprise and parts.algorithm.predicts_values:
        # In the order of the trials, each in a column of its own.
        batch = parts.buffer.whole(first, parts.buffer.num_added, packed=False)
        surprise = parts.algorithm.surprise(batch).cpu().numpy().astype(np.float64)
    return PlayedTrials(result.tasks[whole], result.returns[whole], result.successes[whole], surprise)

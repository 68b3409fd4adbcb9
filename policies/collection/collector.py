"""Collection: a wave of trials for a learner, and what follows from it once it is complete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from buffers.replay import Replay
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from policies.agents.agent import Agent
from policies.collection.actor_state import ReadAlong
from policies.collection.wave import AgentActor, OpenPlan, RandomActor, WaveResult, run_wave
from utils.seeding import Phase

if TYPE_CHECKING:
    from policies.learner import Learner


def play(
    learner: Learner,
    num_trials: int,
    agent: Agent | None,
    env: ParallelEnvManager,
    sink: Replay,
    *,
    budget: int | None = None,
    tick: Callable[[WaveResult], bool],
) -> WaveResult:
    """A wave of the learner's next trials, by this agent or by random actions, into a sink; nothing of the
    learner changes but its watch.
    """
    counters, room = learner.counters, learner.buffer.rows_per_trial
    if env.rows_per_trial > room:
        raise ValueError(
            f"A trial of this environment has up to {env.rows_per_trial} rows, and the replay has room for {room}."
        )
    if num_trials < 0:
        raise ValueError(f"{num_trials} trials cannot be collected.")
    if not num_trials:
        return WaveResult.empty(0, env.episodes_per_trial)
    phase, first = (Phase.WARMUP, counters.warmup_trials) if agent is None else (Phase.TRAIN, counters.trials)
    keeper = sink if sink.state_every else None
    actor = (
        RandomActor(env.single_action_space) if agent is None else AgentActor(agent, device=learner.device)
    )
    if agent is None and keeper is not None:
        actor = ReadAlong(actor, reads=AgentActor(learner.agent, device=learner.device))
    task = partial(learner.tasks.of_trial, learner.family, learner.config.seed, phase)
    plan = OpenPlan(learner.config.seed, phase, first, num_trials, task, budget)
    result = run_wave(env, actor, plan, sink=sink, keeper=keeper, watch=learner.watch, tick=tick)
    if result.dropped.all():
        raise WorkerError(
            f"All {len(result.dropped)} trials of a collection were given up after faults: there is nothing to learn from."
        )
    return result


def take_in(learner: Learner, result: WaveResult, *, first: int, warmup: bool) -> None:
    """The replay has a wave now, from its trial number `first`: count it, and off-policy learn from it how to
    normalise.
    """
    learner.counters.count(result, warmup=warmup)
    if (
        len(result.dropped)
        and learner.agent.normaliser is not None
        and (warmup or not learner.needs.on_policy)
    ):
        learner.agent.update_normaliser(
            learner.buffer.whole(first, learner.buffer.num_added), learner.config.algorithm.discount
        )

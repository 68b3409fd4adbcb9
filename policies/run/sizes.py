"""The sizes of a run: its slots, its waves and its buffer follow from its config and its family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from buffers.base import Needs
from envs.base import EnvSpec, TaskFamily
from envs.layout import Layout
from policies.algorithms import ALGORITHMS
from policies.memory import MEMORIES
from policies.memory.base import Memory, MemoryConfig
from policies.run.config import Config

MOST_SLOTS = 64
# The part of its longest length that a trial takes at least, where a wave is a number of env steps.
SHORTEST = 0.1


def needs_of(config: Config) -> Needs:
    """Which rows the algorithm of this config asks for."""
    return ALGORITHMS[config.algorithm.name].needs(config.algorithm, config.agent.arch)


def slots_of(config: Config) -> int:
    """N is part of the experiment, so it depends on no backend and no machine."""
    if config.num_slots:
        return config.num_slots
    if needs_of(config).on_policy:
        return MOST_SLOTS
    return min(config.train.num_rollouts_per_iter, MOST_SLOTS)


def row_layout(config: Config, spec: EnvSpec) -> Layout:
    """The layout of the rows that the agent of this config sees."""
    return Layout(spec, with_task=config.env.oracle, with_flag=config.env.max_rollouts_per_task > 1)


@dataclass(frozen=True)
class RunSizes:
    """The sizes that a config and its family lead to, computed once for a run."""

    num_slots: int
    # The most trials of a wave.
    wave_trials: int
    # A wave starts no more trials once it has taken so many env steps; None: it starts all of them.
    wave_env_steps: int | None
    # The trials that the buffer must have room for, by the option that asks for them.
    trials_to_hold: dict[str, int]
    # The arguments that build the buffer of the run.
    buffer_shape: dict[str, Any]

    @classmethod
    def of(cls, config: Config, family: TaskFamily) -> RunSizes:
        """The sizes of a run with this config over this family."""
        env, train, needs, num_slots = family.config, config.train, needs_of(config), slots_of(config)
        longest = env.max_rollouts_per_task * env.max_episode_steps

        # A wave is a number of trials, or of env steps; on-policy, by default, a longest trial for each slot.
        budget = train.num_env_steps_per_iter
        if budget is None and needs.on_policy:
            budget = num_slots * longest
        if budget is None:
            wave_trials, named = train.num_rollouts_per_iter, "train.num_rollouts_per_iter"
        else:
            # Trials may be short, and then there are many of them before the env steps are taken.
            wave_trials = num_slots + math.ceil(budget / (SHORTEST * longest))
            named = "train.num_env_steps_per_iter or num_slots"

        # On-policy the buffer holds one wave (or the random pool), off-policy as many as it may.
        to_hold = {named: wave_trials, "train.num_init_rollouts_pool": train.num_init_rollouts_pool}
        if not needs.on_policy:
            to_hold["train.buffer_size (env steps)"] = train.buffer_size // longest

        # Hidden states are stored only for algorithms whose windows start from them.
        states = None
        if needs.state_every:
            states = state_leaves(MEMORIES[config.memory.name], config.memory)
        shape = {
            "obs_space": row_layout(config, family.spec).obs_space,
            "action_space": family.spec.action_space,
            "capacity_trials": max(to_hold.values()),
            "rows_per_trial": env.max_rollouts_per_task * (env.max_episode_steps + 1),
            "extras": needs.extras,
            "state_every": needs.state_every,
            "states": states,
        }
        return cls(num_slots, wave_trials, budget, to_hold, shape)

    @property
    def wave_shape(self) -> dict[str, Any]:
        """The arguments that build the extra buffer of one wave, which `learner.overlap=bounded` uses."""
        return self.buffer_shape | {"capacity_trials": self.wave_trials}


def state_leaves(
    memory: type[Memory], config: MemoryConfig
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, type) of each part of the state that such a memory has for one slot."""
    with torch.random.fork_rng(devices=[]):  # building a memory draws its parameters, which are not used here
        state = memory(config, 1).initial_state(1)
    return {name: (tuple(leaf.shape[1:]), leaf.cpu().numpy().dtype) for name, leaf in state.items()}

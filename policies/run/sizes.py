"""What a run needs: the sizes that follow from config and family, and checks before anything is started."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from buffers.base import Needs, Sample
from buffers.replay import Replay
from envs.base import EnvSpec, TaskFamily
from envs.layout import Layout
from envs.meta.make_env import make_family
from policies.agents.agent import check_spaces
from policies.agents.base import Arch
from policies.agents.task_inference import check_decodable
from policies.algorithms import ALGORITHMS
from policies.curriculum import CURRICULA
from policies.evaluation.lists import read_tasks
from policies.memory import MEMORIES
from policies.memory.base import Memory, MemoryConfig
from policies.run.config import POOL_TEACHES, Config, Overlap, WhichCheckpoint
from utils.machine import available_memory
from utils.options import OptionError

MOST_SLOTS = 64
# The part of its longest length that a trial takes at least, where a wave is a number of env steps.
SHORTEST = 0.1
# The part of the free memory that a buffer may take.
MEMORY_SHARE = 0.9


def needs_of(config: Config) -> Needs:
    """Which rows the algorithm of this config asks for."""
    return ALGORITHMS[config.algorithm.name].needs(config.algorithm, config.agent.arch)


def slots_of(config: Config) -> int:
    """N is part of the experiment, so it depends on no backend and no machine."""
    if config.num_slots:
        return config.num_slots
    at_once = min(config.train.num_rollouts_per_iter, MOST_SLOTS)
    return MOST_SLOTS if needs_of(config).on_policy else at_once


def pool_trials(config: Config) -> int:
    """The trials of random actions that a run begins with: none where nothing would be learned from them."""
    return config.train.num_init_rollouts_pool if POOL_TEACHES.holds(config, needs_of(config)) else 0


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
    # Off-policy: the gradient updates that an env step earns; 0 on-policy, where a wave earns one.
    updates_per_step: float
    # Off-policy: the rows of a batch that train, at full length; 0 on-policy.
    batch_rows: int
    # The rows that the buffer must have room for, by the option that asks for them.
    rows_to_hold: dict[str, int]
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

        # The buffer has room for a wave (or the random pool), and off-policy for many trials beside it.
        rows_per_trial = env.max_rollouts_per_task * (env.max_episode_steps + 1)
        trials = {named: wave_trials, "train.num_init_rollouts_pool": train.num_init_rollouts_pool}
        to_hold = {option: count * rows_per_trial for option, count in trials.items()}
        if not needs.on_policy:
            to_hold["train.buffer_size (rows)"] = train.buffer_size

        # Hidden states are stored only for algorithms whose windows start from them.
        states = None
        if needs.state_every:
            states = state_leaves(MEMORIES[config.memory.name], config.memory)
        shape = {
            "obs_space": row_layout(config, family.spec).obs_space,
            "action_space": family.spec.action_space,
            "capacity_rows": 0 if needs.on_policy else max(to_hold.values()),
            "wave_trials": max(trials.values()),
            "rows_per_trial": rows_per_trial,
            "extras": needs.extras,
            "state_every": needs.state_every,
            "states": states,
        }
        # What a column of a batch has: a transition, a window, or a whole trial.
        columns = {Sample.transitions: 1, Sample.windows: needs.window, Sample.trials: longest}
        batch_rows = needs.batch_size * columns[needs.sample]
        earned = 0.0
        if not needs.on_policy:
            earned = config.train.updates_per_step
            if earned is None:  # so many that `replay_ratio` rows are learned from
                earned = train.replay_ratio / batch_rows
        return cls(num_slots, wave_trials, budget, earned, batch_rows, to_hold, shape)

    @property
    def wave_shape(self) -> dict[str, Any]:
        """The arguments that build the extra buffer of one wave, which `learner.overlap=bounded` uses."""
        return self.buffer_shape | {"capacity_rows": 0, "wave_trials": self.wave_trials}


def state_leaves(
    memory: type[Memory], config: MemoryConfig
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, type) of each part of the state that such a memory has for one slot."""
    with torch.random.fork_rng(devices=[]):  # building a memory draws its parameters, which are not used here
        state = memory(config, 1).initial_state(1)
    return {name: (tuple(leaf.shape[1:]), leaf.cpu().numpy().dtype) for name, leaf in state.items()}


def check_family(config: Config, *, learns: bool = True) -> TaskFamily:
    """Build the family of a run, which checks its own options, and return it if the run can work with it.

    The agent must be able to read its observations and to learn its actions, and the memory must have room
    for its trials. With `learns=False` no buffer is made, so only a learning run needs the room for one.
    """
    family = make_family(config.env)
    # One environment is to train in, the other to evaluate in; each has all slots.
    family.prepare(2 * slots_of(config) if learns else slots_of(config))
    _check_spaces(config, family)
    _check_evaluation(config, family, learns=learns)
    fitted_memory(config, family)
    if learns:
        kind = CURRICULA[config.curriculum.name]
        for problem in kind.problems(config.curriculum, family):
            raise OptionError(problem)
        _check_room(config, RunSizes.of(config, family))
    return family


def check_same_spaces(trained: Config, config: Config, family: TaskFamily) -> None:
    """Refuse an environment that shows or takes something else than the one that a run was trained in."""
    before = make_family(trained.env).spec
    for what, one, other in (
        ("observations", row_layout(trained, before).obs_space, row_layout(config, family.spec).obs_space),
        ("actions", before.action_space, family.spec.action_space),
    ):
        if one != other:
            raise OptionError(
                f"With these options of env the {what} are {other}, and the agent was trained with {one}: "
                "an evaluation may change only what leaves them alone."
            )


def fitted_memory(config: Config, family: TaskFamily) -> MemoryConfig:
    """The options of the memory with room for the longest trial; too little room is refused."""
    if config.agent.arch is Arch.Markov:
        return config.memory  # no part of this agent reads it
    # Evaluation may have longer trials than training. A recurrence fits any length; a transformer has as
    # many positions as rows.
    env = family.config
    episodes = max(env.max_rollouts_per_task, config.evaluation.episodes_per_trial or 0)
    try:
        return MEMORIES[config.memory.name].fitted(config.memory, episodes * (env.max_episode_steps + 1))
    except ValueError as error:
        raise OptionError(f"memory={config.memory.name}: {error}") from error


def _check_spaces(config: Config, family: TaskFamily) -> None:
    # The agent must have an encoder for the observation, and a head for the action.
    obs_space, action_space = row_layout(config, family.spec).obs_space, family.spec.action_space
    try:
        kind = check_spaces(obs_space, action_space).kind
        check_decodable(config.agent.task_inference, obs_space)
    except ValueError as error:
        raise OptionError(f"env={config.env.family}: {error}") from error
    # The algorithm must be able to learn such actions; otherwise name those that can.
    if kind not in ALGORITHMS[config.algorithm.name].serves:
        able = [f"algorithm={name}" for name, other in ALGORITHMS.items() if kind in other.serves]
        raise OptionError(
            f"algorithm={config.algorithm.name} cannot learn {kind.value} actions, "
            f"those of env={config.env.family} ({action_space}): use {' or '.join(able)}."
        )


def _check_evaluation(config: Config, family: TaskFamily, *, learns: bool) -> None:
    # While a run is trained it is evaluated on the lists of its seed, and its present agent is all it has.
    chosen = config.evaluation
    if learns and chosen.tasks is not None:
        raise OptionError(f"evaluation.tasks={chosen.tasks} is for a trained run: give it with evaluate=RUN.")
    if learns and chosen.checkpoint is not WhichCheckpoint.last:
        raise OptionError("evaluation.checkpoint=best is for a trained run: give it with evaluate=RUN.")
    if chosen.tasks is not None:
        read_tasks(Path(chosen.tasks), family.spec)


def _check_room(config: Config, sizes: RunSizes) -> None:
    # With overlap there is one more buffer, which holds the wave that is being collected.
    needed, free = Replay.bytes_needed(**sizes.buffer_shape), available_memory()
    if config.learner.overlap is Overlap.bounded:
        needed += Replay.bytes_needed(**sizes.wave_shape)
    if needed > MEMORY_SHARE * free:
        # Name the option that asks for the most room: lowering any other one would not help.
        rows = sizes.rows_to_hold
        raise OptionError(
            f"The replay needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are free: "
            f"lower {max(rows, key=lambda option: rows[option])} or free some memory."
        )

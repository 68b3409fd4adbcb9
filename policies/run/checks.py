"""The checks of a run that need its family: what cannot work is refused here, before anything is started."""

from __future__ import annotations

from buffers.replay import Replay
from envs.base import TaskFamily
from envs.meta.make_env import make_family
from policies.agents.agent import check_spaces
from policies.agents.base import Arch
from policies.agents.task_inference import check_decodable
from policies.algorithms import ALGORITHMS
from policies.memory import MEMORIES
from policies.memory.base import MemoryConfig
from policies.run.config import Config, Overlap
from policies.run.sizes import RunSizes, row_layout
from utils.machine import available_memory
from utils.options import OptionError

# The part of the free memory that a buffer may take.
MEMORY_SHARE = 0.9


def check_family(config: Config, *, learns: bool = True) -> TaskFamily:
    """Build the family of a run, which checks its own options, and return it if the run can work with it.

    The agent must be able to read its observations and to learn its actions, and the memory must have room
    for its trials. With `learns=False` no buffer is made, so only a learning run needs the room for one.
    """
    family = make_family(config.env)
    _check_spaces(config, family)
    fitted_memory(config, family)
    if learns:
        _check_room(config, RunSizes.of(config, family))
    return family


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


def _check_room(config: Config, sizes: RunSizes) -> None:
    # With overlap there is one more buffer, which holds the wave that is being collected.
    needed, free = Replay.bytes_needed(**sizes.buffer_shape), available_memory()
    if config.learner.overlap is Overlap.bounded:
        needed += Replay.bytes_needed(**sizes.wave_shape)
    if needed > MEMORY_SHARE * free:
        # Name the option that asks for the most room: lowering any other one would not help.
        trials = sizes.trials_to_hold
        raise OptionError(
            f"The replay needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are free: "
            f"lower {max(trials, key=lambda option: trials[option])} or free some memory."
        )

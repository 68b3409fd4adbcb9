"""What a run settles before it starts: device, threads, slots, workers, and whether its replay fits in
memory.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from buffers.base import Needs
from buffers.replay import Replay
from envs.backends.auto import BackendChoice, choose_backend
from envs.backends.base import BackendConfig
from envs.base import EnvConfig, EnvSpec, TaskFamily
from envs.layout import Layout
from envs.meta.make_env import make_family
from policies.agents.agent import Agent, check_spaces
from policies.agents.base import Arch, PolicyRows
from policies.agents.task_inference import check_decodable
from policies.algorithms import ALGORITHMS
from policies.collection.actor_state import leaves_of
from policies.memory import MEMORIES
from policies.memory.base import MemoryConfig
from policies.run.config import Config, DeviceName, Overlap, ReplayDevice
from utils.machine import available_cores, available_memory, keep_freed_memory
from utils.options import OptionError

MOST_SLOTS = 64
SHORTEST = 0.1
"""Part of its longest length that a trial is taken to have at least, where room is made for a number of env
steps.
"""


def needs_of(config: Config) -> Needs:
    """What a run's algorithm asks for."""
    return ALGORITHMS[config.algorithm.name].needs(config.algorithm, config.agent.arch)


def slots_of(config: Config) -> int:
    """N: part of the experiment, so it depends on no backend and no machine."""
    return config.num_slots or (
        MOST_SLOTS if needs_of(config).on_policy else min(config.train.num_rollouts_per_iter, MOST_SLOTS)
    )


def wave_of(config: Config, env: EnvConfig) -> tuple[int, int | None]:
    """(the most trials of an iteration, the env steps after which no more are started): with a budget, trials
    may be short and so many.

    `env` is the family's own config: some settle H themselves.
    """
    train, longest = config.train, env.max_rollouts_per_task * env.max_episode_steps
    budget = train.num_env_steps_per_iter
    if budget is None and needs_of(config).on_policy:
        budget = slots_of(config) * longest
    if budget is None:
        return train.num_rollouts_per_iter, None
    return slots_of(config) + math.ceil(budget / (SHORTEST * longest)), budget


def layout_of(config: Config, spec: EnvSpec) -> Layout:
    """The rows that a run's agent sees."""
    return Layout(spec, with_task=config.env.oracle, with_flag=config.env.max_rollouts_per_task > 1)


def settle_backend(config: Config, family: TaskFamily, agent: Agent, device: str) -> BackendChoice:
    """The backend and the number of workers, as given; what is not given follows from a short measurement of
    environments and policy.
    """
    num_slots = slots_of(config) // config.num_groups
    rows = layout_of(config, family.spec).allocate(num_slots)
    obs = (
        {key: torch.from_numpy(part) for key, part in rows.obs.items()}
        if isinstance(rows.obs, dict)
        else torch.from_numpy(rows.obs)
    )
    others = (rows.reward.astype(np.float32), rows.prev_action, rows.episode_start, rows.trial_start)
    seen = PolicyRows(obs, *map(torch.from_numpy, others)).to(device)
    noise = torch.from_numpy(agent.draw_noise(np.random.default_rng(0), num_slots)).to(device)

    def act() -> None:
        with torch.inference_mode():
            for _ in range(config.num_groups):
                agent.act(seen, agent.initial_state(num_slots), noise)[0].cpu()

    return choose_backend(
        family,
        config.backend,
        slots_of(config),
        num_workers=config.num_parallel_workers,
        num_groups=config.num_groups,
        act=act,
    )


def in_process(config: BackendConfig) -> BackendConfig:
    """The same settings as far as they mean anything without workers: for the sequential run of a parallel
    one.
    """
    return replace(config, name="serial", min_ready=None, max_worker_memory=None)


def most_workers(config: Config) -> int:
    """The most worker processes that a run may start for one manager."""
    if config.num_parallel_workers is not None:
        return config.num_parallel_workers
    return (
        1
        if config.backend.name in ("serial", "asyncio", "thread")
        else min(available_cores(), slots_of(config) // config.num_groups)
    )


def prepare_torch(config: Config) -> str:
    """Settle threads and determinism for the whole process; the device's name.

    One intra-op thread: the environments' threads or workers have the other cores, and two busy pools on one
    core cost five times more.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    if config.deterministic:
        os.environ.setdefault(
            "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
        )  # cuBLAS asks for this, before its first call
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(
        config.deterministic
    )  # off, too: the job of a sweep before this one may have been
    if config.device is not DeviceName.auto:
        return config.device.value
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def replay_shape(config: Config, family: TaskFamily) -> dict[str, Any]:
    """What the replay of a run is built from."""
    env, spec = family.config, family.spec
    needs = needs_of(config)
    every = needs.state_every
    return {
        "obs_space": layout_of(config, spec).obs_space,
        "action_space": spec.action_space,
        "capacity_trials": max(_trials_of(config, env).values()),
        "rows_per_trial": env.max_rollouts_per_task * (env.max_episode_steps + 1),
        "extras": needs.extras,
        "state_every": every,
        "states": leaves_of(MEMORIES[config.memory.name], config.memory) if every else None,
    }


def _trials_of(config: Config, env: EnvConfig) -> dict[str, int]:
    """The trials that a replay has to have room for, by the option that says so."""
    per_wave = (
        "train.num_env_steps_per_iter or num_slots"
        if wave_of(config, env)[1] is not None
        else "train.num_rollouts_per_iter"
    )
    found = {
        per_wave: wave_of(config, env)[0],
        "train.num_init_rollouts_pool": config.train.num_init_rollouts_pool,
    }
    if needs_of(config).on_policy:
        return found
    return found | {
        "train.buffer_size (env steps)": config.train.buffer_size
        // (env.max_rollouts_per_task * env.max_episode_steps)
    }


def wave_shape(config: Config, family: TaskFamily) -> dict[str, Any]:
    """The same of a place for one wave of training, where it is kept apart until it is complete."""
    return replay_shape(config, family) | {"capacity_trials": wave_of(config, family.config)[0]}


def memory_of(config: Config, family: TaskFamily) -> MemoryConfig:
    """The memory of a run, with room for its longest trial; refuses one that has too little, where anybody
    remembers.
    """
    if config.agent.arch is Arch.Markov:
        return config.memory
    rows = max(family.config.max_rollouts_per_task, config.evaluation.episodes_per_trial or 0) * (
        family.config.max_episode_steps + 1
    )
    try:
        return MEMORIES[config.memory.name].fitted(config.memory, rows)
    except ValueError as error:
        raise OptionError(f"memory={config.memory.name}: {error}") from error


def copies_to_device(config: Config, family: TaskFamily, device: str) -> bool:
    """Whether the replay has an image on the device that trains; refuses one that does not fit."""
    asked = config.train.replay_device
    if device == "cpu" or needs_of(config).on_policy or asked is ReplayDevice.host:
        return False
    if not device.startswith("cuda"):  # others share the host's memory, or say little of their own
        return asked is ReplayDevice.device
    needed, free = Replay.bytes_needed(**replay_shape(config, family)), torch.cuda.mem_get_info()[0]
    if asked is ReplayDevice.device and needed > 0.9 * free:
        raise OptionError(
            f"train.replay_device=device needs {needed / 2**30:.1f} GiB of the {free / 2**30:.1f} GiB that are free on {device}: "
            "lower train.buffer_size (env steps) or use train.replay_device=host."
        )
    return asked is ReplayDevice.device or needed <= free / 2


def check_family(config: Config, *, learns: bool = True) -> TaskFamily:
    """The family of a run, which says itself what of its options cannot stand together; refuses, before
    anything is started, what the agent cannot read and, where it learns, a replay that would not fit in
    memory.
    """
    family = make_family(config.env)
    space, algorithm = family.spec.action_space, ALGORITHMS[config.algorithm.name]
    try:
        kind = check_spaces(layout_of(config, family.spec).obs_space, space).kind
        check_decodable(config.agent.task_inference, layout_of(config, family.spec).obs_space)
    except ValueError as error:
        raise OptionError(f"env={config.env.family}: {error}") from error
    if kind not in algorithm.serves:
        others = " or ".join(
            f"algorithm={name}" for name, other in ALGORITHMS.items() if kind in other.serves
        )
        raise OptionError(
            f"algorithm={config.algorithm.name} cannot learn {kind.value} actions, those of env={config.env.family} ({space}): use {others}."
        )
    memory_of(config, family)
    if not learns:
        return family
    needed, free = Replay.bytes_needed(**replay_shape(config, family)), available_memory()
    if config.learner.overlap is Overlap.bounded:
        needed += Replay.bytes_needed(**wave_shape(config, family))
    if needed > 0.9 * free:
        trials = _trials_of(config, family.config)
        raise OptionError(
            f"The replay needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are free: "
            f"lower {max(trials, key=lambda option: trials[option])} or free some memory."
        )
    return family

"""What a run settles before it starts: device, threads, slots, workers, and whether its replay fits in memory."""

from __future__ import annotations

import os
from typing import Any

import torch

from buffers.replay import Replay
from envs.base import EnvSpec, Layout
from envs.meta.make_env import make_family
from policies.config import Config, DeviceName
from utils.machine import available_cores, available_memory
from utils.options import OptionError

MOST_SLOTS = 64


def slots_of(config: Config) -> int:
    """N: part of the experiment, so it depends on no backend and no machine."""
    return config.num_slots or min(config.train.num_rollouts_per_iter, MOST_SLOTS)


def settle_backend(config: Config) -> int:
    """The number of workers: as given; by default this process alone, or a process per core where that backend was asked for."""
    if config.num_parallel_workers is not None:
        return config.num_parallel_workers
    return min(available_cores(), slots_of(config)) if config.backend.name == "process" else 1


def prepare_torch(config: Config) -> str:
    """Settle threads and determinism for the whole process; the device's name.

    One intra-op thread: the environments' threads or workers have the other cores, and two busy pools on one core cost five times more.
    """
    torch.set_num_threads(1)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for this, before its first call
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    if config.device is not DeviceName.auto:
        return config.device.value
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def replay_shape(config: Config, spec: EnvSpec) -> dict[str, Any]:
    """What the replay of a run is built from."""
    env, train = config.env, config.train
    layout = Layout(spec, with_task=env.oracle, with_flag=env.max_rollouts_per_task > 1)
    in_capacity = train.buffer_size // (env.max_rollouts_per_task * env.max_episode_steps)
    return {
        "obs_space": layout.obs_space,
        "action_space": spec.action_space,
        "capacity_trials": max(in_capacity, train.num_rollouts_per_iter, train.num_init_rollouts_pool),
        "rows_per_trial": env.max_rollouts_per_task * (env.max_episode_steps + 1),
    }


def check_replay_fits(config: Config) -> None:
    """Refuse a replay that would not fit in memory, before anything is started."""
    needed, free = Replay.bytes_needed(**replay_shape(config, make_family(config.env).spec)), available_memory()
    if needed > 0.9 * free:
        raise OptionError(
            f"The replay needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB of memory are free: "
            "lower train.buffer_size (env steps) or free some memory."
        )

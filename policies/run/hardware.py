"""What a run takes of the machine: torch's settings, the device, and the backend."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from buffers.replay import Replay
from envs.backends.auto import BackendChoice, choose_backend
from envs.base import TaskFamily, map_obs
from policies.agents.agent import Agent
from policies.agents.base import PolicyRows
from policies.run.config import Config, DeviceName, ReplayDevice, plain
from policies.run.sizes import RunSizes, needs_of, row_layout, slots_of
from utils.disk.made_once import made_once
from utils.machine import available_cores, keep_freed_memory
from utils.options import OptionError

# The file in the folder of a sweep in which its jobs note what backend=auto has chosen.
BACKENDS_FILE = "backends.json"
# The parts of a device's free memory that a copy of the buffer may take: by `auto`, and when asked for.
AUTO_SHARE, LARGEST_SHARE = 0.5, 0.9


def prepare_torch(config: Config) -> str:
    """Set torch's threads and determinism for the whole process, and return the name of the device.

    Torch gets one intra-op thread: the environments' threads or workers have the other cores, and two busy
    pools on one core cost five times more.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first call
        torch.backends.cudnn.benchmark = False
    # Switched off, too: an earlier job of the same sweep may have switched it on in this process.
    torch.use_deterministic_algorithms(config.deterministic)

    # An accelerator is taken where there is one.
    if config.device is not DeviceName.auto:
        return config.device.value
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pick_backend(
    config: Config, family: TaskFamily, agent: Agent, device: str, notes: Path | None = None
) -> BackendChoice:
    """The backend and the number of workers, as given; what is not given follows from a short measurement.

    The jobs of a sweep share its `notes`.
    """
    # Blank rows of one group of slots, and their noise: as large as those that the run will have.
    num_slots = slots_of(config) // config.num_groups
    rows = row_layout(config, family.spec).allocate(num_slots)
    others = (rows.reward.astype(np.float32), rows.prev_action, rows.episode_start, rows.trial_start)
    policy_rows = PolicyRows(map_obs(torch.from_numpy, rows.obs), *map(torch.from_numpy, others)).to(device)
    noise = torch.from_numpy(agent.draw_noise(np.random.default_rng(0), num_slots)).to(device)

    def act() -> None:
        """The policy's part of a round: the environments' part is measured beside it."""
        with torch.inference_mode():
            for _ in range(config.num_groups):
                agent.act(policy_rows, agent.initial_state(num_slots), noise)[0].cpu()

    def choose() -> BackendChoice:
        workers, groups = config.num_parallel_workers, config.num_groups
        return choose_backend(
            family, config.backend, slots_of(config), num_workers=workers, num_groups=groups, act=act
        )

    if notes is None or config.backend.name != "auto":
        return choose()
    return _noted(notes, config, choose)


def _noted(file: Path, config: Config, choose: Callable[[], BackendChoice]) -> BackendChoice:
    """The choice that another job of the sweep has made for such environments, or one that is made now.

    A job that measures by itself would do so beside those that train.
    """
    sizes = slots_of(config), config.num_groups, config.num_parallel_workers
    parts = plain(asdict(config.env)), plain(asdict(config.backend))
    key = json.loads(json.dumps([platform.node(), available_cores(), *parts, *sizes]))

    def make() -> dict[str, Any]:
        choice = choose()
        backend = {"name": choice.backend.name, "threads": choice.backend.threads}
        return backend | {"workers": choice.num_workers, "reason": choice.reason}

    note, was_there = made_once(file, key, make)
    backend = replace(config.backend, name=note["name"], threads=note["threads"])
    reason = note["reason"] + " (measured once for this sweep)" * was_there
    return BackendChoice(backend, note["workers"], reason)


def most_workers(config: Config) -> int:
    """The most worker processes that a run may start for one manager."""
    # What is given is obeyed; otherwise processes are at most one for each core.
    if config.num_parallel_workers is not None:
        return config.num_parallel_workers
    if config.backend.name in ("serial", "asyncio", "thread"):
        return 1
    return min(available_cores(), slots_of(config) // config.num_groups)


def copies_to_device(config: Config, sizes: RunSizes, device: str) -> bool:
    """Whether the buffer has a copy on the device that trains; a copy that does not fit is refused."""
    # On a CPU the buffer is where the agent is, and a rollout is read once: a copy would gain nothing.
    asked = config.train.replay_device
    if device == "cpu" or needs_of(config).on_policy or asked is ReplayDevice.host:
        return False
    if not device.startswith("cuda"):  # other devices share the host's memory, or do not report their own
        return asked is ReplayDevice.device
    needed, free = Replay.bytes_needed(**sizes.buffer_shape), torch.cuda.mem_get_info()[0]
    if asked is ReplayDevice.auto:
        return needed <= AUTO_SHARE * free
    if needed > LARGEST_SHARE * free:
        raise OptionError(
            f"train.replay_device=device needs {needed / 2**30:.1f} GiB of the {free / 2**30:.1f} GiB "
            f"that are free on {device}: lower train.buffer_size (rows) or use train.replay_device=host."
        )
    return True

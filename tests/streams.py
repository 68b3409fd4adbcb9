"""Streams: the trials of a manager as bytes and as one hash, in the order of their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Rows, arrays_of
from envs.parallel_env_manager import ParallelEnvManager, Start
from utils.seeding import Phase, Purpose, generator, trial_seed, uniforms

# (trial, row, rows, actions of that row) -> changes something in place, to see that the hash sees it
Tamper = Callable[[int, int, Rows, NDArray[Any]], None]


def start_of(manager: ParallelEnvManager, trial: int, seed: int) -> Start:
    """Task and seed of a trial, by its number alone."""
    task = manager.sample_tasks(1, rng=generator(seed, Phase.TRAIN, Purpose.TASK, trial))[0]
    return Start(task, trial_seed(seed, Phase.TRAIN, trial))


def action_of(manager: ParallelEnvManager, trial: int, row: int, seed: int) -> NDArray[Any]:
    """A pseudo-random action, by trial and row alone."""
    space = manager.single_action_space
    draws = uniforms(
        np.array([(seed * 1_000_003 + trial) * 10_007 + row], np.uint64), int(np.prod(space.shape or ()))
    )[0]
    if isinstance(space, spaces.Discrete):
        return np.array(space.start + int(space.n * draws[0]))
    if isinstance(space, spaces.MultiDiscrete):
        return np.floor(space.nvec * draws).astype(np.int64)
    assert isinstance(space, spaces.Box)
    return (2.0 * draws - 1.0).astype(np.float32).reshape(space.shape)


def trial_streams(
    manager: ParallelEnvManager, num_trials: int, *, seed: int = 0, tamper: Tamper | None = None
) -> list[bytes]:
    """Run trials 0..n-1, a free slot takes the next one, and return the bytes of each.

    They are all rows, with the action chosen there.
    """
    streams = [b""] * num_trials
    count = [0] * num_trials
    trial_of = np.full(manager.num_envs, -1)
    started = min(manager.num_envs, num_trials)
    trial_of[:started] = np.arange(started)
    first = [start_of(manager, trial, seed) for trial in range(started)]
    rows = manager.reset(
        [start.task for start in first], [start.seed for start in first], list(range(started))
    )
    starts: dict[int, Start] = {}
    while True:
        actions = np.zeros(manager.action_space.shape or (), manager.single_action_space.dtype)
        for slot in np.flatnonzero(rows.valid).tolist():
            trial = int(trial_of[slot])
            actions[slot] = action_of(manager, trial, count[trial], seed)
            if tamper:
                tamper(trial, count[trial], rows, actions[slot])
            streams[trial] += _row_bytes(manager, rows, slot, actions[slot])
            count[trial] += 1
        starts.clear()
        for slot in np.flatnonzero(rows.valid & rows.trial_end).tolist():
            if started < num_trials:
                starts[slot], trial_of[slot] = start_of(manager, started, seed), started
                started += 1
        if not starts and not manager.running.any():
            return streams
        rows = manager.step(actions, starts)


def stream_hash(
    manager: ParallelEnvManager, num_trials: int, *, seed: int = 0, tamper: Tamper | None = None
) -> str:
    """One hash of `trial_streams`."""
    return hashlib.sha256(b"|".join(trial_streams(manager, num_trials, seed=seed, tamper=tamper))).hexdigest()


def _row_bytes(manager: ParallelEnvManager, rows: Rows, slot: int, action: NDArray[Any]) -> bytes:
    flags = [rows.terminated, rows.truncated, rows.episode_start, rows.trial_start, rows.trial_end]
    arrays = [*arrays_of(rows.obs), rows.task, rows.reward, *flags, rows.info, rows.prev_action]
    return (
        b"".join(array[slot].tobytes() for array in arrays)
        + action.tobytes()
        + bytes([int(manager.episode[slot])])
    )

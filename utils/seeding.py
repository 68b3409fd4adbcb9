"""Keyed random streams: what is drawn depends on a key, never on where or when it is drawn.

Trial number j of a run has its own streams, keyed `(root seed, phase, purpose, j)`. The key goes through
`SeedSequence`, not through `seed + j`: with sums, runs with seeds 0 and 1 would share all but one of their
streams.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Phase(IntEnum):
    """What a trial is for; the phases never share a stream."""

    TRAIN = 0
    WARMUP = 1
    EVALUATE = 2
    TASKS = 3
    UPDATE = 4


class Purpose(IntEnum):
    """What is drawn for a trial."""

    TASK = 0
    ENVIRONMENT = 1
    ACTION = 2


def generator(root: int, *key: int) -> np.random.Generator:
    """The generator of one key."""
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=key))


def trial_seed(root: int, phase: Phase, number: int) -> int:
    """The 64-bit seed of the environment in one trial."""
    sequence = np.random.SeedSequence(root, spawn_key=(phase, Purpose.ENVIRONMENT, number))
    return int(sequence.generate_state(1, np.uint64)[0])


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser, elementwise (wraps around by design)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def episode_seeds(trial_seeds: NDArray[np.uint64], episodes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """[n] the seed of episode `episodes[i]` (0-based) of the trial seeded `trial_seeds[i]`."""
    return _mix(_mix(trial_seeds) + (episodes.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def follows(seed: int, before: int) -> bool:
    """Whether `seed` is that of the episode after the one seeded `before`, in the same trial.

    For those who are told the seeds of episodes alone, and not where a trial begins.
    """
    return (_unmixed(seed) - _unmixed(before)) % 2**64 == int(_GOLDEN)


def _unmixed(z: int) -> int:
    """The number that `_mix` makes `z` of: each of its three steps can be undone."""
    z ^= (z >> 31) ^ (z >> 62)
    z = z * 0x319642B2D24D8EC3 % 2**64
    z ^= (z >> 27) ^ (z >> 54)
    z = z * 0x96DE1B173F119089 % 2**64
    return z ^ (z >> 30) ^ (z >> 60)


def uniforms(seeds: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """[n, count] uniform draws in [0, 1), row i a function of `seeds[i]` alone.

    A keyed Generator would cost 21 us for each row, and this costs well under one.
    """
    # Splitmix64: the mixed seed is the state; draw j mixes the state after j steps of the golden ratio.
    counters = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(_mix(seeds)[:, None] + counters[None, :])
    # The 53 highest bits fill the fraction of a double.
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

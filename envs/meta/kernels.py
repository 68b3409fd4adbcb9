"""Pieces of the families' kernels: elementwise numpy over slots, the same bits for one slot as for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import SlotError
from utils.seeding import episode_seeds, uniforms

SPLITS = ("train", "test")


def index_of(slots: NDArray[np.int64], num_slots: int) -> NDArray[np.int64] | slice:
    """How to index arrays over slots.

    It is a slice where all slots are meant, which is the usual case and gives views instead of copies; else
    it is the slots themselves.
    """
    return slice(None) if len(slots) == num_slots else slots


def clipped_actions(actions: NDArray[Any], slots: NDArray[np.int64]) -> NDArray[np.float64]:
    """[n, A] actions in float64, clipped to [-1, 1].

    NaN is refused, because it would pass through every clip and spoil the episode.
    """
    clipped = np.minimum(np.maximum(actions, -1.0, dtype=np.float64), 1.0)
    # Minimum and maximum pass NaN on, so the clipped actions contain every NaN of the actions.
    if np.isnan(clipped).any():
        bad = int(np.flatnonzero(np.isnan(clipped).any(axis=1))[0])
        raise SlotError(int(slots[bad]), f"the action {np.asarray(actions[bad]).tolist()} is not a number")
    return clipped


def checked_choices(actions: NDArray[Any], slots: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """[n, ...] choices out of 0..count-1.

    Any other number is refused, because an index out of range would read another slot's numbers.
    """
    choices = np.asarray(actions, np.int64)
    # The last comparison finds numbers that are not whole, which the conversion has cut.
    wrong = (choices < 0) | (choices >= count) | (choices != actions)
    if wrong.any():
        bad = int(np.flatnonzero(wrong.reshape(len(slots), -1).any(axis=1))[0])
        action = np.asarray(actions[bad]).tolist()
        raise SlotError(int(slots[bad]), f"the action {action} is none of 0 to {count - 1}")
    return choices


def sum_columns(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, A] -> [n] sums over the columns.

    The columns are added by halves, in an order that is the same for any n; the order of a numpy reduction is
    not.
    """
    # Columns that are left over by a halving, to be added at the end.
    odd: list[NDArray[np.float64]] = []
    while (width := values.shape[1]) > 1:
        half = width // 2
        if width % 2:
            odd.append(values[:, -1])
        values = values[:, :half] + values[:, half : 2 * half]
    total = values[:, 0]
    for column in odd:
        total = total + column
    return total


def split_uniforms(rng: np.random.Generator, shape: tuple[int, ...], split: str) -> NDArray[np.float64]:
    """Uniform draws in [0, 1) for one split; no draw of one split is ever a draw of the other.

    The draws lie on a grid of 2^-32, of which training takes the even points and tests take the odd ones. Two
    streams of a continuous distribution would be disjoint too, but only as long as the same stream is never
    used for both.
    """
    check_split(split)
    points = 2 * rng.integers(2**31, size=shape) + (split == "test")
    return points.astype(np.float64) * 2.0**-32


def split_choices(
    rng: np.random.Generator, n: int, values: tuple[float, ...], split: str
) -> NDArray[np.float64]:
    """[n] of these values in random order, each equally often (up to one).

    So every single draw is uniform, and a short list is balanced.
    """
    check_split(split)
    # Shuffle the values first: the ones that come once more often in n draws are random too.
    repeated = np.resize(rng.permutation(np.array(values)), n)
    return rng.permutation(repeated)


def split_draws(draw: Callable[[int], NDArray[np.float64]], n: int, split: str) -> NDArray[np.float64]:
    """[n, task_dim] draws of `draw(count)` that lie in the split.

    This is for whole-numbered tasks of which there are too many to list. A hash of the task decides its
    split, so each task is on one side for ever, and the two sides look alike; a plain rule, such as the
    parity of a sum, would leave its mark on the tasks.
    """
    check_split(split)
    tasks = draw(n)
    outside = np.arange(n)
    # Draw the tasks of the other split again, until none is left.
    while True:
        # The hash of a task: its numbers, folded into one key after the other.
        keys = np.zeros(len(outside), np.uint64)
        for column in tasks[outside].astype(np.int64).T:
            keys = episode_seeds(keys, column)
        outside = outside[(uniforms(keys, 1)[:, 0] < 0.5) != (split == "train")]
        if not len(outside):
            return tasks
        tasks[outside] = draw(len(outside))


def check_split(split: str) -> None:
    """Refuse a split that is neither train nor test."""
    if split not in SPLITS:
        raise ValueError(
            f"There are tasks to train and tasks to test: split={split!r} must be 'train' or 'test'."
        )

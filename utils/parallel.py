"""Work in threads: independent parts of one computation run at the same time, and give the same bits.

Torch works without the interpreter's lock, so two threads of one intra-op thread each keep two cores busy.
One operation on two intra-op threads does not, since most operations of a recurrence are small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import torch

from utils.machine import available_cores

S = TypeVar("S")
T = TypeVar("T")
First = TypeVar("First")
Second = TypeVar("Second")

# A computation over fewer rows than this gains less from a thread than the thread costs.
FEWEST_ROWS = 1000


def run_both(
    first: Callable[[], First], second: Callable[[], Second], *, rows: int, device: torch.device
) -> tuple[First, Second]:
    """Return (first(), second()), at the same time if that pays; neither may read what the other writes.

    It does not pay for few rows, on one core, and on other devices: there the first runs before the second.
    """
    if device.type != "cpu" or rows < FEWEST_ROWS or available_cores() < 2:
        return first(), second()
    with _threads(1) as pool:
        other = pool.submit(second)
        return first(), other.result()


def map_in_threads(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return [function(item) for item in items], each item in a thread of its own, the first in this one."""
    if len(items) == 1:
        return [function(items[0])]
    with _threads(len(items) - 1) as pool:
        others = [pool.submit(function, item) for item in items[1:]]
        return [function(items[0]), *(other.result() for other in others)]


def _threads(count: int) -> Executor:
    # The pool lives for one call: leaving its `with` block waits for its threads, also where a part has
    # failed. A new thread takes over the process's number of intra-op threads when it first asks for that
    # number.
    return ThreadPoolExecutor(count, "part", initializer=torch.get_num_threads)

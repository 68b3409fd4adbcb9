"""Lanes: two halves of an update that wait for nothing of each other, side by side where the machine has a
core for each.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

import torch

from utils.machine import available_cores

First = TypeVar("First")
Second = TypeVar("Second")

FEWEST_ROWS = 1000
"""Below, a thread costs more than it saves."""


def both(
    first: Callable[[], First], second: Callable[[], Second], *, rows: int, device: torch.device
) -> tuple[First, Second]:
    """What both give, whichever thread they run in: the numbers are the same, since neither reads what the
    other writes.

    Torch works without the interpreter's lock, so two threads of one intra-op thread each keep two cores
    busy; one operation on two threads does not, since most operations of a recurrence are small. On other
    devices, and for few rows, one after the other.
    """
    if device.type != "cpu" or rows < FEWEST_ROWS or available_cores() < 2:
        return first(), second()
    found: list[Second] = []
    raised: list[BaseException] = []

    def run() -> None:
        torch.get_num_threads()  # a new thread takes over the number of intra-op threads when it is first asked for it
        try:
            found.append(second())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            raised.append(error)

    lane = Thread(target=run, name="lane")
    lane.start()
    try:
        mine = first()
    finally:
        lane.join()
    if raised:
        raise raised[0]
    return mine, found[0]

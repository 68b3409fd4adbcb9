"""The serial backend: every shard in this process, one after the other.

It is the reference that all other backends must equal, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    RUN_ENDINGS,
    Backend,
    BackendConfig,
    Block,
    Commands,
    Fault,
    construction_error,
    fault_of_error,
    render_error,
    segments_of,
)
from envs.backends.shard_host import ShardHost
from envs.layout import Layout
from utils.machine import available_cores


class SerialBackend(Backend):
    """Steps when `wait` is called, so that `post` returns at once here too."""

    def __init__(
        self,
        blocks: Sequence[Block],
        layout: Layout,
        *,
        num_workers: int,
        num_groups: int = 1,
        config: BackendConfig,
    ) -> None:
        if num_workers > 1:
            raise ValueError(
                f"The serial backend works in this process; num_workers={num_workers} needs another backend."
            )
        self._threads = config.threads or available_cores()
        self._layout = layout
        self.rows = layout.allocate(blocks[-1].stop)
        # With one worker there is one segment, and so one host, for each group.
        self._segments = segments_of(blocks, 1, num_groups)
        self._edges = np.array([segment.start for segment in self._segments[1:]])
        self._hosts: list[ShardHost | None] = [None] * len(self._segments)
        self._posted: deque[tuple[NDArray[np.int64], Commands]] = deque()
        for number in range(len(self._segments)):
            try:
                self._build(number)
            except RUN_ENDINGS:
                self.close()
                raise
            except BaseException as error:
                slots = self._segments[number].slots
                self.close()
                raise construction_error([fault_of_error(error, slots, slots)]) from error

    def _build(self, number: int) -> None:
        blocks = self._segments[number].blocks
        self._hosts[number] = ShardHost(blocks, self._layout, self.rows, self._threads)

    def _number_of(self, slot: int) -> int:
        """Return the number of the segment that has this slot."""
        return int(np.searchsorted(self._edges, slot, side="right"))

    @property
    def description(self) -> str:
        unit = "threads" if self._threads > 1 else "thread"
        return f"in process, up to {self._threads} {unit}"

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        if len(self._segments) == 1:
            self._posted.append((slots, commands))
            return
        # One entry for each host that has some of the slots.
        parts = np.split(slots, np.searchsorted(slots, self._edges))
        self._posted += [(part, commands) for part in parts if len(part)]

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        faults: list[Fault] = []
        while self._posted:
            fault = self._run(*self._posted[0])
            # Removed only now: after Ctrl-C in a step the next wait reports its environments as lost.
            self._posted.popleft()
            if fault is not None:
                faults.append(fault)
        if not faults:
            return slots, faults
        lost = {slot for fault in faults for slot in fault.lost}
        return np.array([slot for slot in slots.tolist() if slot not in lost], np.int64), faults

    def _run(self, slots: NDArray[np.int64], commands: Commands) -> Fault | None:
        number = self._number_of(slots[0])
        host = self._hosts[number]
        if host is None:
            lost = self._segments[number].slots
            return Fault(tuple(slots.tolist()), "was lost and not built anew", lost=lost)
        try:
            host.run(slots, commands)
        except RUN_ENDINGS:  # in the middle of a step
            self._hosts[number] = None
            raise
        except BaseException as error:  # noqa: BLE001 - it becomes a fault
            return fault_of_error(error, tuple(slots.tolist()), self._segments[number].slots)
        return None

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        # The environments of a segment share a host, so they are lost and built together.
        faults = []
        for number in np.unique(np.searchsorted(self._edges, slots, side="right")).tolist():
            self._close(number)
            try:
                self._build(number)
            except RUN_ENDINGS:
                raise
            except BaseException as error:  # noqa: BLE001 - it becomes a fault
                segment_slots = self._segments[number].slots
                faults.append(fault_of_error(error, segment_slots, segment_slots))
        return faults

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        host = self._hosts[self._number_of(slot)]
        if host is None:
            raise render_error(slot, Fault((slot,), "was lost and not built anew"), lost=True)
        try:
            return host.render(slot)
        except RUN_ENDINGS:
            raise
        except BaseException as error:
            raise render_error(slot, fault_of_error(error, (slot,), ()), lost=False) from error

    def close(self) -> None:
        for number in range(len(self._hosts)):
            self._close(number)

    def _close(self, number: int) -> None:
        host, self._hosts[number] = self._hosts[number], None
        if host is not None:
            host.close()

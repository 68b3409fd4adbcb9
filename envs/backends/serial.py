"""The serial backend: every shard in this process, one after the other. The reference that all other backends
must equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    Backend,
    BackendConfig,
    Block,
    Commands,
    Fault,
    Segment,
    ShardHost,
    not_built,
    not_drawn,
    raised,
    segments_of,
)
from envs.layout import Layout
from utils.machine import available_cores


class SerialBackend(Backend):
    """Steps when asked to wait, so that `post` returns at once here too."""

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
        self._segments = segments_of(blocks, 1, num_groups)
        self._hosts: list[ShardHost | None] = []
        self._build()
        self._edges = np.array([segment.start for segment in self._segments[1:]])
        self._posted: deque[tuple[NDArray[np.int64], Commands]] = deque()

    def _build(self) -> None:
        for segment in self._segments:
            try:
                self._hosts.append(self._host(segment))
            except (Exception, SystemExit) as error:
                everyone = tuple(range(segment.start, segment.stop))
                self.close()
                raise not_built([raised(error, everyone, everyone)]) from error

    def _host(self, segment: Segment) -> ShardHost:
        return ShardHost(segment.blocks, self._layout, self.rows, self._threads)

    @property
    def description(self) -> str:
        return f"in process, up to {self._threads} thread{'s' if self._threads > 1 else ''}"

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        if len(self._segments) == 1:
            self._posted.append((slots, commands))
        else:
            self._posted += [
                (part, commands) for part in np.split(slots, np.searchsorted(slots, self._edges)) if len(part)
            ]

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        faults: list[Fault] = []
        while self._posted:
            fault = self._run(*self._posted[0])
            self._posted.popleft()  # only now: one that is interrupted is still owed, and its environments are lost
            if fault is not None:
                faults.append(fault)
        bad = {slot for fault in faults for slot in fault.lost}
        return (
            np.array([slot for slot in slots.tolist() if slot not in bad], np.int64) if bad else slots
        ), faults

    def _run(self, slots: NDArray[np.int64], commands: Commands) -> Fault | None:
        number = int(np.searchsorted(self._edges, slots[0], side="right"))
        host = self._hosts[number]
        everyone = tuple(range(self._segments[number].start, self._segments[number].stop))
        if host is None:
            return Fault(tuple(slots.tolist()), "was lost and not built anew", lost=everyone)
        try:
            host.run(slots, commands)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises becomes a named fault
            return raised(error, tuple(slots.tolist()), everyone)
        except BaseException:  # Ctrl-C in the middle of a step
            self._hosts[number] = None
            raise
        return None

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        faults = []
        for number in np.unique(np.searchsorted(self._edges, slots, side="right")).tolist():
            segment, old = self._segments[number], self._hosts[number]
            everyone, self._hosts[number] = tuple(range(segment.start, segment.stop)), None
            if old is not None:
                old.close()
            try:
                self._hosts[number] = self._host(segment)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises becomes a named fault
                faults.append(raised(error, everyone, everyone))
        return faults

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        host = self._hosts[int(np.searchsorted(self._edges, slot, side="right"))]
        if host is None:
            raise not_drawn(slot, Fault((slot,), "was lost and not built anew"), lost=True)
        try:
            return host.render(slot)
        except (Exception, SystemExit) as error:
            raise not_drawn(slot, raised(error, (slot,), ()), lost=False) from error

    def close(self) -> None:
        for number, host in enumerate(self._hosts):
            self._hosts[number] = None
            if host is not None:
                host.close()

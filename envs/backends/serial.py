"""The serial backend: every shard in this process, one after the other. The reference that all other backends must equal."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Backend, BackendConfig, Block, Commands, Fault, ShardHost
from envs.base import Layout, SlotError
from utils.machine import available_cores


class SerialBackend(Backend):
    """Steps when asked to wait, so that `post` returns at once here too."""

    def __init__(self, blocks: Sequence[Block], layout: Layout, *, num_workers: int, config: BackendConfig) -> None:
        if num_workers > 1:
            raise ValueError(f"The serial backend works in this process; num_workers={num_workers} needs backend=process.")
        self._threads = config.threads or available_cores()
        self.rows = layout.allocate(blocks[-1].stop)
        self._host: ShardHost | None = ShardHost(blocks, layout, self.rows, self._threads)
        self._posted: list[tuple[NDArray[np.int64], Commands]] = []

    @property
    def description(self) -> str:
        return f"in process, up to {self._threads} thread{'s' if self._threads > 1 else ''}"

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        self._posted.append((slots, commands))

    def wait(self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None) -> tuple[NDArray[np.int64], list[Fault]]:
        faults: list[Fault] = []
        for posted, commands in self._posted:
            fault = self._run(posted, commands)
            if fault is not None:
                faults.append(fault)
        self._posted.clear()
        bad = {slot for fault in faults for slot in fault.slots}
        return (np.array([slot for slot in slots if slot not in bad], np.int64) if bad else slots), faults

    def _run(self, slots: NDArray[np.int64], commands: Commands) -> Fault | None:
        assert self._host is not None, "the backend is closed"
        try:
            self._host.run(slots, commands)
        except Exception as error:  # noqa: BLE001 - whatever an environment raises becomes a named fault
            failed = (error.slot,) if isinstance(error, SlotError) else tuple(int(slot) for slot in slots)
            return Fault(failed, f"raised {type(error).__name__}: {error}", traceback.format_exc())
        return None

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        assert self._host is not None, "the backend is closed"
        return self._host.render(slot)

    def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()

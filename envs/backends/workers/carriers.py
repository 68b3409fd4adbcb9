"""How actions and rows get from one process to the other: through shared memory, or in the messages
themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.workers.arena import SharedRowsMemory
from envs.base import Layout, Rows, Slots


class RowTransport(ABC):
    """Built alike by the trainer and by its workers: `rows` of all slots, of which each worker uses its own."""

    rows: Rows
    action_bytes: int
    """Bytes that a request carries for the action of one slot."""
    reply_bytes: int
    """Bytes that a reply carries for the row of one slot."""
    descriptor = -1
    """What a starting worker inherits to have the same memory, if it does."""

    @abstractmethod
    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None: ...

    @abstractmethod
    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        """Trainer: these are the next actions; `actions` of all slots."""

    @abstractmethod
    def enclose(self, slots: Slots) -> bytes:
        """Trainer: what the request to step these slots carries of the published actions."""

    @abstractmethod
    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        """Worker: the actions of these slots."""

    @abstractmethod
    def pack(self, slots: Slots) -> bytes:
        """Worker: what the reply carries of the rows of these slots."""

    @abstractmethod
    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        """Trainer: the rows of these slots have arrived. A `ValueError` if they are no rows."""

    def close(self) -> None:
        """Close the descriptor; the rows stay."""
        return


class SharedRows(RowTransport):
    """Actions and rows in shared memory: messages carry none of them."""

    action_bytes = reply_bytes = 0

    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None:
        self._arena = SharedRowsMemory(layout, num_slots, descriptor)
        self.rows, self._actions = self._arena.rows, self._arena.actions
        self.descriptor = self._arena.descriptor

    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        self._actions[slots] = actions[slots]

    def enclose(self, slots: Slots) -> bytes:
        return b""

    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        return self._actions[slots]

    def pack(self, slots: Slots) -> bytes:
        return b""

    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        if packed:
            raise ValueError("rows where none were expected")

    def close(self) -> None:
        self._arena.close()


class SentRows(RowTransport):
    """Actions and rows in the messages, as the bytes of their arrays, whose shapes and types both sides know."""

    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None:
        self.rows = layout.allocate(num_slots)
        own = layout.part(self.rows, 0, num_slots)
        obs = list(own.obs.values()) if isinstance(own.obs, dict) else [own.obs]
        self._arrays = [
            (array, _bytes_per_slot(array))
            for array in (*obs, own.reward, own.terminated, own.truncated, own.info)
        ]
        self._published: NDArray[Any] = self.rows.prev_action
        self.action_bytes = _bytes_per_slot(self._published)
        self.reply_bytes = sum(size for _, size in self._arrays)

    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        self._published = actions

    def enclose(self, slots: Slots) -> bytes:
        return self._published[slots].tobytes()

    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        return np.frombuffer(bytearray(enclosed), self._published.dtype).reshape(
            -1, *self._published.shape[1:]
        )

    def pack(self, slots: Slots) -> bytes:
        return b"".join(array[slots].tobytes() for array, _ in self._arrays)

    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        count = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        if len(packed) != count * self.reply_bytes:
            raise ValueError(f"{len(packed)} bytes for {count} rows")
        at = 0
        for array, size in self._arrays:
            if size:
                items = count * size // array.itemsize
                array[slots] = np.frombuffer(packed, array.dtype, items, at).reshape(count, *array.shape[1:])
                at += count * size


def _bytes_per_slot(array: NDArray[Any]) -> int:
    return prod(array.shape[1:]) * array.itemsize

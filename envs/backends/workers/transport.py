"""How actions and rows travel between trainer and worker: through shared memory, or in the messages.

The blueprint of what a worker builds is at the end: it is pickled by the trainer and unpickled in the worker.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendError, Block
from envs.backends.workers import isolation
from envs.backends.workers.memory import SharedMemory, reserve
from envs.backends.workers.messages import MalformedMessage
from envs.base import Rows, Slots
from envs.layout import Layout
from utils.text import harmless

# The bytes of a cache line: no two arrays share one.
ALIGNMENT = 64


class RowTransport(ABC):
    """One side of the transport: trainer and workers build the same class with the same sizes.

    Both sides have `rows` of all slots; each worker reads and writes those of its own slots only.
    """

    rows: Rows
    # The bytes that a request carries for the action of one slot.
    action_bytes: int
    # The bytes that a reply carries for the row of one slot.
    reply_bytes: int
    # What a starting worker inherits in order to map the same memory; -1 where there is none.
    descriptor = -1

    @abstractmethod
    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None: ...

    # -- on the trainer's side -------------------------------------------------------------------------------

    @abstractmethod
    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        """Set the next actions of these slots; `actions` holds those of all slots."""

    @abstractmethod
    def enclose(self, slots: Slots) -> bytes:
        """Return what a request to step these slots carries of the published actions."""

    @abstractmethod
    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        """Store the rows that a reply carries; a `MalformedMessage` if the bytes are no rows."""

    # -- on the worker's side --------------------------------------------------------------------------------

    @abstractmethod
    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        """Return the actions of these slots."""

    @abstractmethod
    def pack(self, slots: Slots) -> bytes:
        """Return what the reply carries of the rows of these slots."""

    def separate(self) -> None:
        """In a fork of a worker: keep rows and actions as they are, apart from those of the trainer."""
        return

    def close(self) -> None:
        """Close the descriptor; the rows stay readable."""
        return


class SharedRows(RowTransport):
    """Actions and rows are in one piece of shared memory: the messages carry none of them.

    A worker maps the trainer's memory by its file descriptor. The mapping lives as long as any of its arrays,
    so rows stay readable after everything is closed.
    """

    action_bytes = reply_bytes = 0

    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None:
        num_bytes = bytes_needed(layout, num_slots)
        self.descriptor = reserve(num_bytes) if descriptor is None else descriptor
        if descriptor is None:
            isolation.trainer_ends.add(self.descriptor)
        try:
            self._memory = SharedMemory(self.descriptor, num_bytes)
        except OSError:
            self.close()
            raise
        if descriptor is not None:  # a worker needs its descriptor no longer
            self.close()
        place = _ArrayPlacer(self._memory.buffer)
        # Both sides place the arrays in the same order, so that they find them at the same offsets.
        self.rows = layout.allocate(num_slots, place)
        self._actions = place.actions(layout, num_slots)

    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        self._actions[slots] = actions[slots]

    def enclose(self, slots: Slots) -> bytes:
        return b""

    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        if packed:
            raise MalformedMessage("rows where none were expected")

    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        return self._actions[slots]

    def pack(self, slots: Slots) -> bytes:
        return b""

    def separate(self) -> None:
        self._memory.separate()

    def close(self) -> None:
        # Only starting (and restarted) workers need the descriptor; the memory stays.
        if self.descriptor >= 0:
            isolation.trainer_ends.discard(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1


class SentRows(RowTransport):
    """Actions and rows are in the messages, as the bytes of arrays whose shapes and types both sides know."""

    def __init__(self, layout: Layout, num_slots: int, descriptor: int | None = None) -> None:
        self.rows = layout.allocate(num_slots)
        # Only what a shard writes travels; the manager writes the rest into the trainer's rows.
        self._arrays = layout.part(self.rows, 0, num_slots).of_shard
        self._published: NDArray[Any] = self.rows.prev_action
        self.action_bytes = _bytes_per_slot(self._published)
        self._sizes = [_bytes_per_slot(array) for array in self._arrays]
        self.reply_bytes = sum(self._sizes)

    def publish(self, slots: Slots, actions: NDArray[Any]) -> None:
        self._published = actions  # no copy: `enclose` is called before the caller can change them

    def enclose(self, slots: Slots) -> bytes:
        return self._published[slots].tobytes()

    def unpack(self, slots: Slots, packed: bytes | bytearray) -> None:
        count = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        if len(packed) != count * self.reply_bytes:
            raise MalformedMessage(f"{len(packed)} bytes for {count} rows")
        offset = 0
        for array, size in zip(self._arrays, self._sizes, strict=True):
            num_bytes = count * size
            if num_bytes:
                received = np.frombuffer(packed, array.dtype, num_bytes // array.itemsize, offset)
                array[slots] = received.reshape(count, *array.shape[1:])
                offset += num_bytes

    def actions(self, slots: Slots, enclosed: bytes | bytearray) -> NDArray[Any]:
        # The copy is writable: an environment may write into the action that it is given.
        received = np.frombuffer(bytearray(enclosed), self._published.dtype)
        return received.reshape(-1, *self._published.shape[1:])

    def pack(self, slots: Slots) -> bytes:
        return b"".join(array[slots].tobytes() for array in self._arrays)


def _bytes_per_slot(array: NDArray[Any]) -> int:
    return prod(array.shape[1:]) * array.itemsize


# -- the shared memory ---------------------------------------------------------------------------------------


def bytes_needed(layout: Layout, num_slots: int) -> int:
    """Return how much memory the rows and actions of so many slots take."""
    placer = _ArrayPlacer(None)
    layout.allocate(num_slots, placer)
    placer.actions(layout, num_slots)
    return max(placer.used, 1)


class _ArrayPlacer:
    """Makes arrays one after the other in a buffer; without a buffer it only adds up their sizes."""

    def __init__(self, buffer: Any) -> None:
        self._buffer, self.used = buffer, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        dtype, start = np.dtype(dtype), self.used
        self.used += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if self._buffer is None:
            return np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory of its own
        if not prod(shape):
            return np.zeros(shape, dtype)
        return np.ndarray(shape, dtype, self._buffer, start)

    def actions(self, layout: Layout, num_slots: int) -> NDArray[Any]:
        space = layout.spec.action_space
        return self((num_slots, *(space.shape or ())), space.dtype)


# -- what a worker builds ------------------------------------------------------------------------------------

# How deep the search for the part that cannot be pickled goes.
SEARCH_DEPTH = 5


@dataclass(frozen=True)
class Blueprint:
    """What a worker builds: the blocks of each of its segments, in rows of all `num_slots`."""

    segments: list[tuple[Block, ...]]
    layout: Layout
    num_slots: int
    transport: type[RowTransport]


def pickled(blueprint: Blueprint) -> bytes:
    """Return the blueprint as bytes; a `BackendError` names the part that cannot be pickled."""
    try:
        return cloudpickle.dumps(blueprint)
    except Exception as error:
        # Only now that it has failed: pickling a value part by part is slow.
        factories = (block.factory for blocks in blueprint.segments for block in blocks)
        culprits = (
            culprit
            for factory in factories
            for culprit in _unpicklable_parts(factory, "factory", SEARCH_DEPTH)
        )
        where, reason = next(culprits, ("the environments", error))
        raise BackendError(
            f"The environments cannot be sent to worker processes: {where} cannot be pickled "
            f"({harmless(str(reason))})."
        ) from error


def _unpicklable_parts(value: Any, name: str, depth: int) -> Iterator[tuple[str, Exception]]:
    """Yield (name, reason) of the innermost part of a value that cannot be pickled, if there is one."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the object that is pickled
        # The innermost part names the user's mistake best; the value itself is named if no part fails alone.
        inner: Iterator[tuple[str, Exception]] = iter(())
        if depth:
            inner = (
                culprit
                for part_name, part in _parts_of(value, name).items()
                for culprit in _unpicklable_parts(part, part_name, depth - 1)
            )
        yield next(inner, (f"{name} (a {type(value).__name__})", error))


def _parts_of(value: Any, name: str) -> dict[str, Any]:
    """Return what is pickled with a value: what a function captures, items, or attributes, by their names."""
    if inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        used = {**captured.globals, **captured.nonlocals}
        return {f"{key} (used by {value.__qualname__})": part for key, part in used.items()}
    if isinstance(value, dict):
        return {f"{name}[{key!r}]": part for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"{name}[{index}]": part for index, part in enumerate(value)}
    return {f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()}

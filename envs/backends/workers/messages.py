"""The messages between trainer and workers: a fixed header each, then raw bytes; how they are written, and
read however a pipe cuts them.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import Any

REQUEST = struct.Struct("<QIIIIQ")
"""token, kind, segment (as its worker counts them), slots to step, slots to reset, bytes that follow: those
slots as int64, their actions, the tasks of the resets, the seeds of the resets; or a pickled blueprint
"""
REPLY = struct.Struct("<QIQ")
"""token of the request, status, bytes that follow: rows, the JSON text of an error, or a picture"""
SHAPE = struct.Struct("<III")
"""height, width and channels, before the bytes of a picture"""
CHUNK = 1 << 16
"""What one read asks for. (A larger buffer would be mapped and unmapped by the allocator at every read, which
costs more than the read.)
"""
TEXT_LIMIT = 60_000
"""bytes of an error's text: it fits into a pipe, so that no worker blocks on telling it"""

Frame = tuple[tuple[Any, ...], bytes | bytearray]
"""A header's fields and the bytes that follow it."""


class MalformedMessage(ValueError):
    """The other side wrote bytes that are no message, or none that was asked for."""


class MessageKind(IntEnum):
    """What is asked of a worker."""

    STEP = 0
    """step all slots of a segment: the bytes that follow are only their actions"""
    RUN = 1
    """step some and reset some"""
    BUILD = 2
    RENDER = 3
    CLOSE = 4


class Status(IntEnum):
    """How a worker answers."""

    DONE = 0
    RAISED = 1
    PICTURE = 2


def token_of(generation: int, sequence: int) -> int:
    """The number of a request: it grows with every request, and with every new process in a worker's place."""
    return generation << 48 | sequence


class MessageReader:
    """Reads whole messages from a pipe; what has come of an unfinished one is kept for the next time."""

    def __init__(self, descriptor: int, head: struct.Struct, limit: int = 1 << 62) -> None:
        self._descriptor, self._head, self._limit = descriptor, head, limit
        self._rest = b""
        self._fields: tuple[Any, ...] = ()
        self._body = bytearray()
        self._missing = memoryview(b"")

    def receive(self) -> list[Frame]:
        """Read once: the messages that are now complete. An `EOFError` if nobody can write any more, a
        `ValueError` if one is beyond the limit.

        Where the descriptor does not block, nothing to read is no message.
        """
        if len(self._missing):
            return self._receive_more()
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError
        if self._rest:
            data = self._rest + data
        head, at, found = self._head, 0, list[Frame]()
        while len(data) - at >= head.size:
            fields = head.unpack_from(data, at)
            length, start = fields[-1], at + head.size
            if length > self._limit:
                raise MalformedMessage(f"a message of {length} bytes")
            if start + length > len(data):
                if length < CHUNK:
                    break
                self._fields, self._body = fields, bytearray(length)  # a long one is read into its place
                self._body[: len(data) - start] = data[start:]
                self._missing = memoryview(self._body)[len(data) - start :]
                at = len(data)
                break
            found.append((fields, data[start : start + length]))
            at = start + length
        self._rest = data[at:]
        return found

    def _receive_more(self) -> list[Frame]:
        try:
            count = os.readv(self._descriptor, [self._missing])
        except BlockingIOError:
            return []
        if not count:
            raise EOFError
        self._missing = self._missing[count:]
        return [] if len(self._missing) else [(self._fields, self._body)]


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of it, however long that takes."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])

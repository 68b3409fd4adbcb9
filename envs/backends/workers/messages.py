"""The messages between trainer and workers: a header of fixed size, then raw bytes.

They are read however a pipe cuts them into pieces. What the raw bytes hold is in `transport.py` (actions and
rows) and in `answers.py` (errors and pictures).
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import Any

REQUEST = struct.Struct("<QIIIIQ")
"""Token, kind, segment (as its worker counts them), slots to step, slots to reset, number of bytes that follow.

A RUN is followed by the slots to step and then those to reset as int64, the actions, the tasks and the seeds
of the resets. A BUILD is followed by a pickled blueprint.
"""
REPLY = struct.Struct("<QIQ")
"""Token of the request, status, number of bytes that follow: rows, the JSON text of an error, or a picture."""
SHAPE = struct.Struct("<III")
"""Height, width and channels, before the bytes of a picture."""
CHUNK = 1 << 16
"""What one read asks for.

The allocator would map and unmap a larger buffer at every read, which costs more than the read.
"""
TEXT_LIMIT = 60_000
"""The most bytes of an error's text: it fits into a pipe, so that no worker blocks while it reports one."""

Message = tuple[tuple[Any, ...], bytes | bytearray]
"""The fields of a header, and the bytes that follow it."""


class MalformedMessage(ValueError):
    """The other side wrote bytes that are no message, or an answer that was not asked for."""


class MessageKind(IntEnum):
    """What a request asks of a worker."""

    STEP = 0
    """Step all slots of a segment: the bytes that follow are only their actions."""
    RUN = 1
    """Step some slots of a segment and reset others."""
    BUILD = 2
    RENDER = 3
    CLOSE = 4


class Status(IntEnum):
    """What a reply carries."""

    DONE = 0
    RAISED = 1
    PICTURE = 2


def token_of(generation: int, sequence: int) -> int:
    """Return the token of a request: it grows with every request, and with every new process of a worker."""
    return generation << 48 | sequence


class MessageReader:
    """Reads whole messages from a pipe, and stores the pieces of unfinished ones until the next read."""

    def __init__(self, descriptor: int, header: struct.Struct, limit: int = 1 << 62) -> None:
        self._descriptor, self._header, self._limit = descriptor, header, limit
        # A short message whose end has not come yet.
        self._rest = b""
        # A long message whose end has not come yet: header, body, and the part of the body to be read.
        self._fields: tuple[Any, ...] = ()
        self._body = bytearray()
        self._missing = memoryview(b"")

    def receive(self) -> list[Message]:
        """Read once and return the messages that are now complete.

        Where the descriptor does not block, nothing to read gives no message. An `EOFError` says that the
        other side has closed the pipe, a `MalformedMessage` that a message is longer than the limit.
        """
        if len(self._missing):
            return self._receive_more()
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError
        return self._split(self._rest + data if self._rest else data)

    def _split(self, data: bytes) -> list[Message]:
        """Cut the bytes into whole messages and store what is left."""
        header, offset, messages = self._header, 0, list[Message]()
        while len(data) - offset >= header.size:
            fields = header.unpack_from(data, offset)
            length, start = fields[-1], offset + header.size
            if length > self._limit:
                raise MalformedMessage(f"a message of {length} bytes")
            if start + length > len(data):
                if length < CHUNK:
                    break
                # The rest of a long message is read directly into its place.
                self._fields, self._body = fields, bytearray(length)
                self._body[: len(data) - start] = data[start:]
                self._missing = memoryview(self._body)[len(data) - start :]
                offset = len(data)
                break
            messages.append((fields, data[start : start + length]))
            offset = start + length
        self._rest = data[offset:]
        return messages

    def _receive_more(self) -> list[Message]:
        """Read on in the body of a long message."""
        try:
            count = os.readv(self._descriptor, [self._missing])
        except BlockingIOError:
            return []
        if not count:
            raise EOFError
        self._missing = self._missing[count:]
        return [] if len(self._missing) else [(self._fields, self._body)]


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of the data, however long that takes."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])

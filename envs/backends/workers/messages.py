"""The messages between trainer and workers: a header of fixed size, then raw bytes.

They are read however a pipe cuts them into pieces. How actions and rows become bytes is in transport.py, how
errors and pictures do is at the end of this file. The trainer checks every byte, since an environment may
have written into the pipe; and it never unpickles what a worker wrote, since unpickling runs code.
"""

from __future__ import annotations

import json
import os
import struct
import traceback
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import TRACE_LIMIT, root_of, shorten
from envs.base import SlotError

# Token, kind, segment (as its worker counts), slots to step, slots to reset, number of bytes that follow.
#
# A RUN is followed by the slots to step and then those to reset as int64, the actions, the tasks and the
# seeds of the resets. A BUILD is followed by a pickled blueprint.
REQUEST = struct.Struct("<QIIIIQ")
# Token of the request, status, number of bytes that follow: rows, an error as JSON text, or a picture.
REPLY = struct.Struct("<QIQ")
# Height, width and channels, before the bytes of a picture.
SHAPE = struct.Struct("<III")
# The most characters of one entry of a traceback.
LINE_LIMIT = 4_000
# What one read asks for.
#
# The allocator would map and unmap a larger buffer at every read, which costs more than the read.
CHUNK = 1 << 16
# The most bytes of an error's text: it fits into a pipe, so that no worker blocks while it reports one.
TEXT_LIMIT = 60_000

# The fields of a header, and the bytes that follow it.
Message = tuple[tuple[Any, ...], bytes | bytearray]


class MalformedMessage(ValueError):
    """The other side wrote bytes that are no message, or an answer that was not asked for."""


class MessageKind(IntEnum):
    """What a request asks of a worker."""

    # Step all slots of a segment: the bytes that follow are only their actions.
    STEP = 0
    # Step some slots of a segment and reset others.
    RUN = 1
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
        # The rest of a long message comes first; nothing else can be in the pipe before it.
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
                # A short message waits for its end with the next read.
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


# -- what replies carry besides rows -------------------------------------------------------------------------


class ErrorReport(NamedTuple):
    """An error that an environment raised in a worker."""

    type_name: str
    message: str
    traceback: str
    # The slot that the error names, if it names one.
    slot: int | None


def describe_error(error: BaseException) -> bytes:
    """Return an error as JSON text of at most `TEXT_LIMIT` bytes."""
    message = str(traceback.TracebackException.from_exception(error))
    report = traceback.TracebackException.from_exception(root_of(error))
    # One entry alone may be huge, such as a message that holds a whole array.
    lines = [line if len(line) < LINE_LIMIT else f"{line[:LINE_LIMIT]}...\n" for line in report.format()]
    slot = error.slot if isinstance(error, SlotError) else None
    # JSON escapes may take several bytes for a character: shorten until the text fits.
    for length in (TRACE_LIMIT, 5_000):
        facts = {
            "type": type(error).__name__,
            "message": shorten(message, length // 3),
            "traceback": shorten("".join(lines), length),
            "slot": slot,
        }
        text = json.dumps(facts, ensure_ascii=False).encode(errors="backslashreplace")
        if len(text) <= TEXT_LIMIT:
            return text
    bare = {"type": type(error).__name__[:100], "message": "", "traceback": "", "slot": slot}
    return json.dumps(bare).encode()


def read_error(body: bytes | bytearray) -> ErrorReport:
    """Return the error that `describe_error` wrote; a `MalformedMessage` if the bytes are something else."""
    try:
        facts = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("an error that is no JSON text") from error
    if not isinstance(facts, dict):
        raise MalformedMessage("an error that is no JSON object")
    texts = [facts.get(name) for name in ("type", "message", "traceback")]
    slot = facts.get("slot")
    if not all(isinstance(text, str) for text in texts) or not isinstance(slot, int | None):
        raise MalformedMessage("an error without its facts")
    return ErrorReport(str(texts[0]), str(texts[1]), str(texts[2]), slot)


def pack_picture(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture as bytes, with its shape before it."""
    pixels = np.ascontiguousarray(pixels, np.uint8)
    return SHAPE.pack(*pixels.shape) + pixels.tobytes()


def read_picture(body: bytes | bytearray) -> NDArray[np.uint8]:
    """Return the picture that `pack_picture` wrote; a `MalformedMessage` if the bytes are something else."""
    if len(body) < SHAPE.size:
        raise MalformedMessage("a picture without a shape")
    shape = SHAPE.unpack_from(body)
    if not 0 < prod(shape) == len(body) - SHAPE.size:
        raise MalformedMessage(f"a picture of shape {shape} in {len(body)} bytes")
    return np.frombuffer(body, np.uint8, offset=SHAPE.size).reshape(shape).copy()

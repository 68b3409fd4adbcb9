"""What the answers of a worker carry besides rows: an error as JSON text, or a picture.

The worker writes them, and the trainer checks every byte: an environment may have written into the pipe. The
trainer never unpickles what a worker wrote, since unpickling runs code that the bytes name.
"""

from __future__ import annotations

import json
import traceback
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.faults import shorten
from envs.backends.workers.messages import SHAPE, TEXT_LIMIT, MalformedMessage
from envs.base import SlotError

LINE_LIMIT = 4_000
"""The most characters of one entry of a traceback."""


class ErrorReport(NamedTuple):
    """An error that an environment raised in a worker."""

    type_name: str
    message: str
    traceback: str
    slot: int | None
    """The slot that the error names, if it names one."""


def describe_error(error: BaseException) -> bytes:
    """Return an error as JSON text of at most `TEXT_LIMIT` bytes."""
    report = traceback.TracebackException.from_exception(error)
    message = str(report)
    lines = [line if len(line) < LINE_LIMIT else f"{line[:LINE_LIMIT]}...\n" for line in report.format()]
    slot = error.slot if isinstance(error, SlotError) else None
    # JSON escapes may take several bytes for a character: shorten until the text fits.
    for length in (24_000, 12_000, 5_000):
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

"""Ways in which the bytes of a file may be damaged, on purpose or by accident."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    """Another bit, or a few of them."""
    changed = bytearray(content)
    for place in rng.integers(0, max(len(content), 1), size=rng.integers(1, 4)).tolist()[: len(content)]:
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    """Its beginning alone."""
    return content[: int(rng.integers(0, max(len(content), 1)))]


def drop(content: bytes, rng: np.random.Generator) -> bytes:
    """A part is gone, and the rest has moved up."""
    start, length = int(rng.integers(0, max(len(content), 1))), int(rng.integers(1, 40))
    return content[:start] + content[start + length :]


def insert(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes that mean nothing, in between."""
    place = int(rng.integers(0, len(content) + 1))
    return content[:place] + rng.bytes(int(rng.integers(1, 30))) + content[place:]


def zero(content: bytes, rng: np.random.Generator) -> bytes:
    """A block of zeros, as a file system leaves it after a power cut."""
    start = int(rng.integers(0, max(len(content), 1)))
    length = min(int(rng.integers(1, 512)), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]


def nest(content: bytes, rng: np.random.Generator) -> bytes:
    """Brackets without end, in front of it or in its place."""
    brackets = [b"[", b'{"a":'][rng.integers(2)] * int(rng.integers(1_000, 60_000))
    return brackets + content * int(rng.integers(2))


def garbage(content: bytes, rng: np.random.Generator) -> bytes:
    """Something else of the same length, or nothing."""
    return rng.bytes(len(content) * int(rng.integers(2)))


DAMAGE: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "flip": flip,
    "cut": cut,
    "drop": drop,
    "insert": insert,
    "zero": zero,
    "nest": nest,
    "garbage": garbage,
}

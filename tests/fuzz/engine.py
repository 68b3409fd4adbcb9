"""The engine of the fuzzers: cases that follow from a seed, and of a case that fails the part that matters.

A case is a list of mutations. Each has a random stream of its own, so that one can be left out and the
others stay what they are.
"""

from __future__ import annotations

import shutil
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from utils.text import harmless

# The longest text that is still a sentence: one that names all slots of a worker, or an option's choices.
LONGEST = 20_000


class BrokenPromise(Exception):
    """A case whose outcome is neither the right data nor a sentence."""


@dataclass(frozen=True)
class Mutation:
    """One change of what is given; `draw` is the seed of everything in it that is random."""

    kind: str
    draw: int

    @property
    def rng(self) -> np.random.Generator:
        """Its random stream, from its beginning."""
        return np.random.default_rng(self.draw)


class Target(ABC):
    """What is fuzzed."""

    name: ClassVar[str]
    # What the suite plays: all targets together take about a minute.
    num_cases: ClassVar[int]
    # The kinds of its mutations, and the most of them in one case.
    kinds: ClassVar[tuple[str, ...]]
    most: ClassVar[int] = 3

    def __init__(self, folder: Path) -> None:
        """Prepare what all cases start from in a folder that is the target's own; `close` ends it."""
        self.folder, self.stack = folder, ExitStack()

    def close(self) -> None:
        """Give back what all cases share."""
        self.stack.close()

    def case(self, seed: int, number: int) -> list[Mutation]:
        """The mutations of a case."""
        rng = np.random.default_rng([seed, number])
        count = int(rng.integers(1, self.most + 1))
        kinds = [self.kinds[int(rng.integers(len(self.kinds)))] for _ in range(count)]
        return [Mutation(kind, int(rng.integers(2**32))) for kind in kinds]

    @abstractmethod
    def play(self, mutations: Sequence[Mutation]) -> None:
        """Play a case; whatever leaves it is a finding."""


@dataclass(frozen=True)
class Finding:
    """A case that breaks the promise, with the mutations that it takes."""

    target: str
    seed: int
    number: int
    mutations: tuple[Mutation, ...]
    error: BaseException

    @property
    def text(self) -> str:
        """How to see it again, and what it is."""
        changes = ", ".join(f"{one.kind}({one.draw})" for one in self.mutations)
        how = f"python -m tests.fuzz {self.target} --seed {self.seed} --case {self.number}"
        return f"{how}\n{changes}\n{''.join(traceback.format_exception(self.error))}"


def findings(target: Target, seed: int, numbers: Iterable[int]) -> Iterator[Finding]:
    """The findings among these cases, each cut down to the mutations that it takes."""
    for number in numbers:
        mutations = target.case(seed, number)
        error = _error_of(target, mutations)
        if error is not None:
            mutations, error = _shrunk(target, mutations, error)
            yield Finding(target.name, seed, number, tuple(mutations), error)


def _shrunk(
    target: Target, mutations: list[Mutation], error: BaseException
) -> tuple[list[Mutation], BaseException]:
    """Leave out one mutation after the other, where the case fails without it too."""
    for one in list(mutations):
        fewer = [other for other in mutations if other is not one]
        smaller = _error_of(target, fewer)
        if smaller is not None:
            mutations, error = fewer, smaller
    return mutations, error


def _error_of(target: Target, mutations: Sequence[Mutation]) -> BaseException | None:
    try:
        target.play(mutations)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a finding may be anything
        return error
    return None


def check_sentence(error: BaseException, *, may_quote: bool = False) -> None:
    """Refuse the text of an error that is no sentence for a user; it may quote a traceback of others."""
    text = str(error)
    if not text.strip():
        raise BrokenPromise(f"{type(error).__name__} says nothing") from error
    if len(text) > LONGEST:
        raise BrokenPromise(f"{type(error).__name__} has {len(text):,} letters") from error
    if text != harmless(text):
        raise BrokenPromise(f"{type(error).__name__} acts on a terminal: {text[:200]!r}") from error
    if "Traceback (most recent call last)" in text and not may_quote:
        raise BrokenPromise(f"{type(error).__name__} shows a traceback: {text[-500:]}") from error


def remove(path: Path) -> None:
    """Remove a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every entry below a folder with its content; None for what is no regular file."""
    found: dict[str, bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = path.read_bytes() if plain else None
    return found

"""Objects that an environment may return or raise where a plain value is expected.

None of them is a legal value that means something else: what comes of them is the right row or a sentence.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from tests.toys_faulty import FinalError, SpeechlessError, UnpicklableError


class Evil:
    """Everything that is asked of it raises."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise RuntimeError("\x1b[2Jnothing is here")
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __bool__(self) -> bool:
        raise ValueError("neither")

    def __float__(self) -> float:
        raise ZeroDivisionError

    def __len__(self) -> int:
        return -1

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError

    def __hash__(self) -> int:
        raise TypeError


class EvilMapping(Mapping[str, Any]):
    """A mapping that has nothing to give."""

    def __getitem__(self, key: str) -> Any:
        raise OSError("the info is on another machine")

    def get(self, key: str, default: Any = None) -> Any:
        raise FinalError("the info is gone")

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat("one")

    def __len__(self) -> int:
        return 1


class LyingArray(np.ndarray[Any, Any]):
    """An array whose methods say other things than what it holds."""

    def max(self, *_: Any, **__: Any) -> Any:
        return 0.0

    def tolist(self) -> Any:
        raise RuntimeError("not for you")


def _cycle() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _error(kind: type[BaseException], *arguments: Any) -> Callable[[], BaseException]:
    return lambda: kind(*arguments)


class Unwilling(Exception):
    """An error that cannot be asked anything."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise SystemError("nothing")

    def __str__(self) -> str:
        raise FinalError("no words")


NOT_ANYTHING: list[Callable[[Any], Any]] = [
    lambda _: None,
    lambda _: "text \x1b]0;title\x07",
    lambda _: b"bytes",
    lambda _: Evil(),
    lambda _: _cycle(),
    lambda _: object,
    lambda _: {},
    lambda _: {"obs": 1},
    lambda _: set[int](),
    lambda _: itertools.count(),
    lambda _: 1j,
    lambda _: "x" * 3_000_000,
    lambda _: np.array(["a", "b", "c"]),
    lambda _: np.array([None, 1, "c"], object),
    lambda _: np.zeros(3, [("a", float)]),
    lambda _: np.array(["2020-01-01"] * 3, "datetime64[D]"),
    lambda _: Ellipsis,
]

OBSERVATIONS: list[Callable[[Any], Any]] = [
    *NOT_ANYTHING,
    lambda obs: obs[:2],
    lambda obs: obs[None],
    lambda obs: obs[:, None],
    lambda obs: np.append(obs, 0.0),
    lambda obs: float(obs[0]),
    lambda obs: obs.tolist(),
    lambda obs: obs.astype(np.float64),
    lambda obs: obs.astype(">f4"),
    lambda obs: obs.astype(np.longdouble),
    lambda obs: np.array([*obs, 0.0, 0.0, 0.0], np.float32)[:3],
    lambda obs: np.repeat(obs, 2)[::2],
    lambda obs: obs.astype(complex),
    lambda obs: torch.tensor(obs),
    lambda obs: obs * np.nan,
    lambda obs: obs.view(LyingArray) * np.nan,
    lambda obs: obs.view(LyingArray),
    lambda obs: obs.astype(np.float64) + 1e300,
    lambda obs: np.array([np.inf, 0.0, 0.0], np.float32),
    lambda obs: np.ma.array(obs, mask=[False, True, False]),
    lambda obs: np.matrix([[1.0, 2.0, 3.0]]),
    lambda obs: np.zeros((10, 100_000), np.float32),
    lambda obs: {"obs": obs},
    lambda obs: (obs,),
    lambda obs: memoryview(obs),
]

NUMBERS: list[Callable[[Any], Any]] = [
    *NOT_ANYTHING,
    lambda number: np.float64(number),
    lambda number: np.array(number),
    lambda number: np.array([number]),
    lambda number: np.array([number, number]),
    lambda number: [number],
    lambda number: str(number),
    lambda number: Fraction(number),
    lambda number: Decimal(number),
    lambda number: torch.tensor(number),
    lambda number: complex(number),
    lambda number: float("nan"),
    lambda number: float("-inf"),
    lambda number: 1e39,
    lambda number: 10**400,
    lambda number: np.longdouble("1e4000"),
]

FLAGS: list[Callable[[Any], Any]] = [
    *NOT_ANYTHING,
    lambda flag: int(flag),
    lambda flag: np.bool_(flag),
    lambda flag: float(flag),
    lambda flag: np.array(flag),
    lambda flag: np.array([flag, flag]),
    lambda flag: str(flag),
    lambda flag: torch.tensor(flag),
    lambda flag: 2,
    lambda flag: -1,
    lambda flag: float("nan"),
]

INFOS: list[Callable[[Any], Any]] = [
    *NOT_ANYTHING[:6],
    lambda info: [info],
    lambda info: EvilMapping(),
    lambda info: info | {"one": None},
    lambda info: info | {"one": "text"},
    lambda info: info | {"one": float("nan")},
    lambda info: info | {"one": Evil()},
    lambda info: info | {"final_obs": "text", "final_info": None, "one": 10**400},
    lambda info: info | {"final_obs": Evil()},
    lambda info: info | {"terminal_observation": np.zeros(7)},
    lambda info: info | {"more": _cycle(), 1: 2, None: Evil(), ("a",): "x" * 1_000_000},
    lambda info: dict(info, episode=Evil(), TimeLimit=info),
]

RESULTS: list[Callable[[tuple[Any, ...]], Any]] = [
    *NOT_ANYTHING,
    lambda result: result[:-1],
    lambda result: (*result, None),
    lambda result: list(result),
    lambda result: result[0],
    lambda result: result[::-1],
    lambda result: (result, result),
    lambda result: iter(result),
    lambda result: (),
]

ERRORS: list[Callable[[], BaseException]] = [
    _error(ValueError, "an ordinary error"),
    _error(ValueError),
    _error(ValueError, "\x1b[2J\x1b]0;title\x07\r\x00\x9b31m"),
    _error(ValueError, "\udcff\ud800 \u202e"),
    _error(ValueError, "x" * 5_000_000),
    _error(ValueError, "many\nlines\n" * 10_000),
    _error(RuntimeError, Evil()),
    _error(StopIteration, 1),
    _error(StopAsyncIteration),
    _error(GeneratorExit),
    _error(SystemExit, "the end"),
    _error(asyncio.CancelledError),
    _error(MemoryError),
    _error(RecursionError),
    _error(BrokenPipeError, 32, "broken"),
    _error(OSError, 28, "no space left on the device"),
    _error(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "odd"),
    _error(KeyError, ("a", "key")),
    _error(ExceptionGroup, "several", [ValueError("\x1b[2J"), KeyError(1)]),
    _error(BaseExceptionGroup, "several", [FinalError("x"), SystemExit(3)]),
    _error(Unwilling),
    _error(SpeechlessError),
    _error(UnpicklableError, "first", object()),
    _error(FinalError, "no Exception"),
    _error(type("\x1b[31mRed", (Exception,), {}), "a class with an odd name"),
    _error(type("Long" * 5000, (Exception,), {}), "a class with a long name"),
]

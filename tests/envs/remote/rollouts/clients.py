"""Clients of several kinds over the same counting game, for tests of what scripts collect with."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.envs.remote.fake_server import Game

both_modes = pytest.mark.parametrize("mode", ["thread", "async"])


@dataclass
class Result:
    """What OpenEnv's clients return."""

    observation: Any
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


@dataclass
class Plain:
    """Blocks; fails in the episodes and steps that a test names, and notes where it was called."""

    length: int = 3
    wait_s: float = 0.0
    base_url: str = "here"
    # (number of the reset, step) -> what is raised there.
    faults: dict[tuple[int, int], BaseException] = field(default_factory=dict)
    resets: list[dict[str, Any]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    disconnects: int = 0

    def __post_init__(self) -> None:
        self._game = Game(self.length)

    def reset(self, **kwargs: Any) -> Result:
        self.resets.append(kwargs)
        self.threads.add(threading.get_ident())
        return Result(**self._game.reset(kwargs))

    def step(self, action: dict[str, Any]) -> Result:
        self.threads.add(threading.get_ident())
        time.sleep(self.wait_s)
        return self._stepped(action)

    def disconnect(self) -> None:
        self.disconnects += 1

    def _stepped(self, action: dict[str, Any]) -> Result:
        fault = self.faults.get((len(self.resets) - 1, self._game.t))
        if fault is not None:
            raise fault
        return Result(**self._game.step(action))


class Awaited(Plain):
    """Its methods are coroutines, as those of OpenEnv 0.2.2 to 0.3.1."""

    async def reset(self, **kwargs: Any) -> Result:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.loop = asyncio.get_running_loop()
        return Plain.reset(self, **kwargs)

    async def step(self, action: dict[str, Any]) -> Result:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert self.loop is asyncio.get_running_loop()
        await asyncio.sleep(self.wait_s)
        return self._stepped(action)


class Syncable(Awaited):
    """Coroutines, with a blocking face that belongs to it."""

    faces = 0

    def sync(self) -> Plain:
        self.faces += 1
        return Plain(self.length, resets=self.resets)


class Auto(Plain):
    """Answers by who calls, as OpenEnv's clients do from 0.4 on."""

    def reset(self, **kwargs: Any) -> Any:
        return self._answer(Plain.reset(self, **kwargs))

    def step(self, action: dict[str, Any]) -> Any:
        return self._answer(self._stepped(action))

    def _answer(self, result: Result) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return result

        async def answered() -> Result:
            await asyncio.sleep(0)
            return result

        return answered()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


def column(observation: Any, done: bool) -> dict[str, Any]:
    """An agent without a memory."""
    return {"column": (int(observation["numbers"][2]) + 1) % 4}

"""Gate: how many messages may be under way to one server at the same time, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from envs.remote.service_board import FoundBoard
from envs.remote.service_setup import MEASURES, Limits, Measure

_OPEN = nullcontext()
# How often a loop looks whether another one has given its turn back: one that is killed could tell nobody.
LOOK_S = 0.001


class _Places:
    """So many places, which are given in the order of asking.

    (A semaphore of asyncio holds its loop for ever, once somebody has waited: then gates, which are found by
    their loop, would never go away.)
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was given at the same moment
                self._give()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give()

    def _give(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # whoever was cancelled waits no more
                place.set_result(None)
                return
        self._free += 1


@dataclass
class Gate:
    """The turnstile before one server, for the sessions of one loop.

    With a board its limits are those of all loops and processes that share the board, and what the sessions
    of a worker process cost is noted there.
    """

    limits: Limits
    measure: Measure
    # The name of the server on the board.
    server: str = ""
    _seats: _Places | None = field(default=None, init=False)
    # Passed by the session of this loop that is the next one to ask the board.
    _door: _Places = field(default_factory=lambda: _Places(1), init=False)
    _next_start: float = field(default=0.0, init=False)
    _board: FoundBoard | None = field(default=None, init=False)
    # The sessions that could not be opened, as far as the board knows of them.
    _noted_failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.limits.max_in_flight is not None:
            self._seats = _Places(self.limits.max_in_flight)
        if self.limits.board is not None:
            self._board = self.limits.board.found()
        self._is_limited = self._seats is not None or self.limits.min_interval_s > 0
        self._is_noted = self._board is not None and not self._board.is_own

    # -- a message -------------------------------------------------------------------------------------------

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Entered while a message is under way."""
        # Without limits there is nothing to wait for, and this is passed for every message.
        if self._is_limited:
            return self._turn()
        return _Noted(self) if self._is_noted else _OPEN

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        began = time.monotonic()
        # The loop's own sessions wait in their order; only the first of them asks the board.
        async with self._seats or _OPEN:
            turn = await self._turn_of_the_board()
            try:
                await self._keep_the_interval()
                self.measure.waiting_s += time.monotonic() - began
                yield
            finally:
                if self._board is not None and turn is not None:
                    self._board.give_back(turn)
                self.note()

    async def _turn_of_the_board(self) -> int | None:
        if self._board is None or self.limits.max_in_flight is None:
            return None
        async with self._door:
            while (turn := self._board.take_turn(self.server, self.limits.max_in_flight)) is None:
                await asyncio.sleep(LOOK_S)
            return turn

    async def _keep_the_interval(self) -> None:
        if not self.limits.min_interval_s:
            return
        start = await self._reserved()
        now = time.monotonic()
        if start > now:
            await asyncio.sleep(start - now)

    async def _reserved(self) -> float:
        """When the next message may begin."""
        interval_s = self.limits.min_interval_s
        if self._board is None:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + interval_s
            return start
        while (reserved := self._board.reserve(self.server, interval_s)) is None:
            await asyncio.sleep(LOOK_S)
        return reserved

    # -- what it costs ---------------------------------------------------------------------------------------

    def note(self) -> None:
        """Note on the board what the sessions of this process have cost, if it is another's board.

        The bytes of the last message are noted with the next one.
        """
        if self._board is not None and self._is_noted:
            self._noted_failures = self.measure.failures
            self._board.note(self.server, self.measure.numbers)

    def note_failures(self) -> None:
        """Note sessions that could not be opened, for which no message was sent."""
        if self._is_noted and self.measure.failures != self._noted_failures:
            self.note()


class _Noted(AbstractAsyncContextManager[None]):
    """Entered while a message is under way that waits for nothing."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __aexit__(self, *_: object) -> None:
        self._gate.note()


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Limits], Gate]] = WeakKeyDictionary()


def gate_of(server: str, limits: Limits) -> Gate:
    """The gate that the sessions of the running loop share before this server."""
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    key = (server, limits)
    gate = gates.get(key)
    if gate is None:
        gate = gates[key] = Gate(limits, MEASURES.setdefault(server, Measure()), server)
    gate.note_failures()
    return gate

"""Gate: how many messages may be under way to one server at the same time, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from envs.remote.service_setup import MEASURES, Limits, Measure

_OPEN = nullcontext()


@dataclass
class Gate:
    """The turnstile before one server, for the sessions of one loop."""

    limits: Limits
    measure: Measure
    _seats: asyncio.Semaphore | None = field(default=None, init=False)
    _next_start: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if self.limits.max_in_flight is not None:
            self._seats = asyncio.Semaphore(self.limits.max_in_flight)

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Entered while a message is under way."""
        # Without limits there is nothing to wait for, and this is passed for every message.
        return self._turn() if self._seats is not None or self.limits.min_interval_s else _OPEN

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        began = time.monotonic()
        if self._seats is not None:
            await self._seats.acquire()
        try:
            await self._keep_the_interval()
            self.measure.waiting_s += time.monotonic() - began
            yield
        finally:
            if self._seats is not None:
                self._seats.release()

    async def _keep_the_interval(self) -> None:
        now = time.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + self.limits.min_interval_s
        if start > now:
            await asyncio.sleep(start - now)


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Limits], Gate]] = WeakKeyDictionary()


def gate_of(server: str, limits: Limits) -> Gate:
    """The gate that the sessions of the running loop share before this server."""
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    key = (server, limits)
    if key not in gates:
        gates[key] = Gate(limits, MEASURES.setdefault(server, Measure()))
    return gates[key]

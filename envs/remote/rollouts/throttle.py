"""Throttles: how many calls are under way to one server, and how soon a client is called again.

A server is what clients have the same `base_url` of; those without one count as one server. `Limits` means
here: `max_in_flight` calls before one server, `min_interval_s` between two calls of one client. There is one
throttle for threads and one for coroutines, since each has to wait in its own way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from envs.remote.gate import Gate
from envs.remote.rollouts.answers import Client
from envs.remote.rollouts.by_client import ByClient
from envs.remote.service_setup import Limits, Measure


def server_of(client: Client) -> str:
    """What says which clients share a server."""
    return str(getattr(client, "base_url", ""))


class ThreadThrottle:
    """Throttles calls that block their threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._seats: dict[str, threading.Semaphore] = {}
        # When a client may be called next; a list, to be written into.
        self._next: ByClient[list[float]] = ByClient(lambda client: [0.0])

    @contextmanager
    def turn(self, client: Client) -> Iterator[None]:
        """Entered while a call is under way."""
        if self._limits.min_interval_s:
            start = self._next[client]
            time.sleep(max(0.0, start[0] - time.monotonic()))
            start[0] = time.monotonic() + self._limits.min_interval_s
        with self._seat(server_of(client)):
            yield

    def _seat(self, server: str) -> threading.Semaphore | nullcontext[None]:
        if self._limits.max_in_flight is None:
            return nullcontext()
        with self._lock:
            return self._seats.setdefault(server, threading.Semaphore(self._limits.max_in_flight))


class LoopThrottle:
    """Throttles calls that are awaited, all in the same event loop."""

    def __init__(self, limits: Limits) -> None:
        per_client = Limits(min_interval_s=limits.min_interval_s)
        self._per_server = Limits(max_in_flight=limits.max_in_flight)
        self._servers: dict[str, Gate] = {}
        self._clients: ByClient[Gate] = ByClient(lambda client: Gate(per_client, Measure()))

    @asynccontextmanager
    async def turn(self, client: Client) -> AsyncIterator[None]:
        """Entered while a call is under way."""
        server = self._servers.setdefault(server_of(client), Gate(self._per_server, Measure()))
        async with self._clients[client].turn(), server.turn():
            yield

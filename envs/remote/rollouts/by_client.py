"""ByClient: something that is remembered for each client, while clients may be of any kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from envs.remote.protocol import RemoteError
from envs.remote.rollouts.answers import Client

T = TypeVar("T")


class ByClient(Generic[T]):
    """One thing for each client, made when it is first asked for.

    Clients are told apart by identity, since they need not be hashable; each is kept with its thing, so that
    no other object takes its place in memory.
    """

    def __init__(self, make: Callable[[Client], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._things: dict[int, tuple[Client, T]] = {}

    def __getitem__(self, client: Client) -> T:
        with self._lock:
            if id(client) not in self._things:
                self._things[id(client)] = (client, self._make(client))
            return self._things[id(client)][1]


class Claims:
    """Which clients play now: a client has one connection, so it plays one episode at a time."""

    def __init__(self) -> None:
        self._lock, self._claimed = threading.Lock(), set[int]()

    @contextmanager
    def claim(self, client: Client) -> Iterator[None]:
        """Entered while an episode is played; a client that plays already is refused."""
        with self._lock:
            if id(client) in self._claimed:
                raise RemoteError(
                    f"This {type(client).__name__} plays an episode already: it can play one at a time."
                )
            self._claimed.add(id(client))
        try:
            yield
        finally:
            with self._lock:
                self._claimed.remove(id(client))

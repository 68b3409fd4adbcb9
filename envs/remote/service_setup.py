"""ServiceSetup: what a worker has to know of servers before it speaks to one; importing it costs nothing.

Here is also what the sessions of this process have cost so far, by server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from envs.remote.actions import FieldWriter
from envs.remote.observations import FieldReader
from envs.remote.service_board import ServiceBoard
from envs.remote.tasks import TaskSource


@dataclass(frozen=True)
class Patience:
    """How long a session waits, for what, and how large an answer may be."""

    # For one connection to open.
    connect_s: float = 10.0
    # For the answer to one message, without what it waited for its turn.
    message_s: float = 60.0
    # For a reset in all: a server that restarts, or has no seat, is tried again for so long.
    total_s: float = 30.0
    max_message_mb: int = 100


@dataclass(frozen=True)
class Limits:
    """What one server is asked to bear: from all who share the board, or without one from one event loop."""

    # Messages under way at the same time; None: as many as there are sessions.
    max_in_flight: int | None = None
    # Seconds between the beginnings of two messages.
    min_interval_s: float = 0.0
    board: ServiceBoard | None = None


@dataclass
class Measure:
    """What the sessions of this process on one server have cost so far."""

    messages: int = 0
    in_flight_s: float = 0.0
    # For the limits, not for the server.
    waiting_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    # Sessions that were opened in place of a lost one.
    reopenings: int = 0
    # Sessions that had no seat, and connections that could not be made.
    refusals: int = 0
    failed_openings: int = 0

    @property
    def numbers(self) -> tuple[float, ...]:
        """All of these, in their order."""
        return tuple(vars(self).values())  # not `astuple`, which takes longer than the rest of a message

    def plus(self, numbers: Sequence[float]) -> Measure:
        """The sum of these and of such numbers of others, which are floats all of them."""
        both = zip(self.numbers, numbers, strict=True)
        return Measure(*(own + type(own)(other) for own, other in both))  # pyright: ignore[reportArgumentType]

    @property
    def failures(self) -> int:
        """Sessions that could not be opened, for whatever reason."""
        return self.refusals + self.failed_openings

    def shown(self) -> dict[str, float]:
        """The numbers that a run shows: totals, and means over the messages."""
        messages = max(self.messages, 1)
        return {
            "messages": self.messages,
            "in_flight_ms": 1000.0 * self.in_flight_s / messages,
            "waiting_ms": 1000.0 * self.waiting_s / messages,
            "bytes_per_message": (self.bytes_sent + self.bytes_received) / messages,
            "reopenings": self.reopenings,
            "refusals": self.failures,
        }


# By server; every gate of this process adds to the same one. Two threads may lose a count, never data.
MEASURES: dict[str, Measure] = {}
os.register_at_fork(after_in_child=MEASURES.clear)


def measured_at(server: str, board: ServiceBoard | None) -> Measure:
    """What the sessions of this process, and of all that share its board, have cost so far at a server."""
    own = MEASURES.get(server, Measure())
    found = None if board is None else board.found()
    # Only who has made the board is asked for more than its own.
    return own if found is None or not found.is_own else own.plus(found.counted(server))


def in_few_words(measured: Mapping[str, float]) -> str:
    """What the metrics of all servers together say, for the console; nothing where there is no server."""
    servers = {
        name.removesuffix("/messages") for name in measured if re.match(r"openenv/.+/messages\Z", name)
    }
    messages = sum(measured[f"{server}/messages"] for server in servers)
    if not messages:
        return ""
    in_flight = sum(measured[f"{server}/messages"] * measured[f"{server}/in_flight_ms"] for server in servers)
    reopened = sum(measured[f"{server}/reopenings"] for server in servers)
    return f"{in_flight / messages:.1f} ms in flight, {reopened:.0f} reopened"


class SessionUse(Enum):
    """How long a slot keeps its session: as long as it can, for one trial, or for one episode."""

    keep = "keep"
    per_trial = "per_trial"
    per_episode = "per_episode"


@dataclass(frozen=True)
class ServiceSetup:
    """All that a worker needs to know of the servers and of what is said to them."""

    urls: tuple[str, ...]
    reader: FieldReader
    writer: FieldWriter
    tasks: TaskSource
    patience: Patience = field(default_factory=Patience)
    limits: Limits = field(default_factory=Limits)
    # They hold secrets, so they are never shown.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: SessionUse = SessionUse.keep
    failover: bool = False
    raise_for_missing_reward: bool = False

    def url_of(self, slot: int, turn: int = 0) -> str:
        """The server of a slot of the manager; with failover, the one that is tried as number `turn`."""
        return self.urls[(slot + turn) % len(self.urls)]

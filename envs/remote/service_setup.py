"""ServiceSetup: what a worker has to know of servers before it speaks to one; importing it costs nothing.

Here is also what the sessions of this process have cost so far, by server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envs.remote.actions import FieldWriter
from envs.remote.observations import FieldReader
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
    """What one server is asked to bear from the sessions of one event loop."""

    # Messages under way at the same time; None: as many as there are sessions.
    max_in_flight: int | None = None
    # Seconds between the beginnings of two messages.
    min_interval_s: float = 0.0


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

    def shown(self) -> dict[str, float]:
        """The numbers that a run shows: totals, and means over the messages."""
        messages = max(self.messages, 1)
        return {
            "messages": self.messages,
            "in_flight_ms": 1000.0 * self.in_flight_s / messages,
            "waiting_ms": 1000.0 * self.waiting_s / messages,
            "bytes_per_message": (self.bytes_sent + self.bytes_received) / messages,
            "reopenings": self.reopenings,
            "refusals": self.refusals + self.failed_openings,
        }


# By server; every gate of this process adds to the same one. Two threads may lose a count, never data.
MEASURES: dict[str, Measure] = {}


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
    session_per_episode: bool = False
    failover: bool = False
    raise_for_missing_reward: bool = False

    def url_of(self, slot: int, turn: int = 0) -> str:
        """The server of a slot of the manager; with failover, the one that is tried as number `turn`."""
        return self.urls[(slot + turn) % len(self.urls)]

"""Session: an environment on an OpenEnv server that is never stepped in doubt.

    session = Session("http://127.0.0.1:8000", Patience(total_s=30.0))
    answer = await session.reset({"seed": 7})           # opens the session; tries again for 30 s
    answer = await session.step({"column": 3})          # sent once; anything but an answer ends the session
    await session.close()

What it promises, whatever the network does:

- A step is sent at most once. If its answer is missing (a time-out, a cancellation, a lost connection, an
  answer that makes no sense) the connection is aborted, and `step` raises `SessionLostError` until a reset.
- Only `reset` opens a connection. It may be repeated, since it begins an episode anew: so it waits for a
  server that restarts or has no seat, with growing pauses that differ from session to session.
- A message that nobody asked for ends the session before the next request is sent.
- One call at a time: a second one is refused, and does not disturb the first.
- `CallRefusedError` (the environment raised, or refused the action) leaves the session in order.

A session belongs to the event loop of its first reset. All sessions of a loop on one server share a `Gate`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from envs.remote.deadline import Deadline
from envs.remote.gate import Gate, gate_of
from envs.remote.protocol import (
    Answer,
    CallRefusedError,
    CapacityError,
    RemoteError,
    SessionLostError,
    is_local,
    read_answer,
    read_state,
    refused_redirect,
    request,
    shown_url,
    websocket_url,
)
from envs.remote.service_setup import Limits, Patience

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

T = TypeVar("T")

# How long a session that is closed in order waits for the server's goodbye.
GOODBYE_S = 1.0
# The pauses between attempts of a reset grow from the first to the second, and are drawn below that.
PAUSES_S = (0.1, 2.0)


@dataclass
class Session:
    """A seat on one server; see the module."""

    url: str
    patience: Patience = field(default_factory=Patience)
    limits: Limits = field(default_factory=Limits)
    # Sent when a connection opens; never shown, since they hold secrets.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    _connection: ClientConnection | None = field(default=None, init=False, repr=False)
    # The next message of the server is always being awaited: so one that nobody asked for is noticed.
    _next: asyncio.Task[str | bytes] | None = field(default=None, init=False, repr=False)
    _deadline: Deadline | None = field(default=None, init=False, repr=False)
    _gate: Gate | None = field(default=None, init=False, repr=False)
    _busy: bool = field(default=False, init=False, repr=False)
    # Whether this connection has given no answer yet, and whether one before it was lost.
    _is_new: bool = field(default=False, init=False, repr=False)
    _was_lost: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self._address, self._server = websocket_url(self.url), shown_url(self.url)

    @property
    def is_open(self) -> bool:
        """Whether a step can be sent."""
        return self._connection is not None

    async def reset(self, arguments: Mapping[str, Any] | None = None) -> Answer:
        """Start an episode; opens the session if there is none, and tries again until patience is over."""
        text, pause = request("reset", arguments or {}), PAUSES_S[0]
        lost = SessionLostError(f"{self._server} gave no answer")
        deadline = time.monotonic() + self.patience.total_s
        while True:
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.01)):
                    return await self._exchange(text, read_answer, opens=True)
            except SessionLostError as error:
                lost = error
            except TimeoutError:
                pass  # patience was over in the middle of an attempt: the one before it knows why
            pause = await self._pause(lost, pause, deadline)

    async def step(self, action: Mapping[str, Any]) -> Answer:
        """Step the environment once."""
        return await self._exchange(request("step", action), read_answer)

    async def state(self) -> dict[str, Any]:
        """What the server tells of the environment's state."""
        return await self._exchange(request("state"), read_state)

    async def close(self) -> None:
        """Give the seat back; the session may be reset again."""
        connection = self._connection
        try:
            if connection is not None and not self._busy:
                async with asyncio.timeout(GOODBYE_S):
                    with suppress(OSError, _closed()):
                        await connection.send(request("close"))
                        await connection.wait_closed()
        except TimeoutError:
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Cut the connection at once, without a goodbye; the next reset opens another."""
        connection, self._connection = self._connection, None
        upcoming, self._next = self._next, None
        if upcoming is not None:
            upcoming.cancel()
        if self._deadline is not None:
            self._deadline.end()
        if connection is not None:
            connection.transport.abort()

    # -- one message and its answer --------------------------------------------------------------------------

    async def _exchange(self, text: str, read: Callable[[str | bytes, str], T], *, opens: bool = False) -> T:
        """Send a message and read its answer; without a complete answer the session is over."""
        if self._busy:
            raise RemoteError(f"Two calls at once on one session of {self._server}: each needs its own.")
        self._busy, answered = True, False
        # Looked up where a connection may open, and not for every message.
        if opens or self._gate is None:
            self._gate = gate_of(self._server, self.limits)
        gate = self._gate
        try:
            if opens and self._is_stale():
                self.abort()
            if self._connection is None:
                if not opens:
                    raise SessionLostError(f"There is no session on {self._server}: a reset opens one.")
                await self._open(gate)
            elif self._is_stale():
                raise SessionLostError(f"{self._server} sent a message that nobody asked for, or hung up.")
            answer = await self._send_and_receive(text, gate)
            result = read(answer, self._server)
            answered = True
            gate.measure.reopenings += self._is_new and self._was_lost
            self._is_new = self._was_lost = False
            return result
        except CallRefusedError:
            answered = True
            raise
        finally:
            self._busy = False
            if not answered:
                self._was_lost = self._was_lost or (self.is_open and not self._is_new)
                self.abort()

    def _is_stale(self) -> bool:
        return self._next is not None and self._next.done()

    async def _open(self, gate: Gate) -> None:
        try:
            self._connection = await _connector()(
                self._address,
                additional_headers=self.headers,
                compression=None,
                open_timeout=self.patience.connect_s,
                # A server that computes a long step answers no ping: the time-out of the message decides.
                ping_interval=None,
                max_size=self.patience.max_message_mb * 2**20,
                proxy=None if is_local(self.url) else True,
            )
        except (OSError, TimeoutError, *_handshake_errors()) as error:
            gate.measure.failed_openings += 1
            raise SessionLostError(
                f"{self._server} cannot be reached: {type(error).__name__}: {error}"
            ) from error
        self._is_new = True
        # An answer that is late cuts the connection: then whoever sends or waits is told that it is closed.
        self._deadline = Deadline(self.patience.message_s, self._connection.transport.abort)
        self._next = asyncio.create_task(self._connection.recv())

    async def _send_and_receive(self, text: str, gate: Gate) -> str | bytes:
        connection, upcoming, deadline = self._connection, self._next, self._deadline
        assert connection is not None and upcoming is not None and deadline is not None
        async with gate.turn():
            began = time.monotonic()
            deadline.start()
            try:
                try:
                    await connection.send(text)
                except _closed():
                    pass  # a server that refuses the session closes it, but its reason comes before: read it
                answer = await upcoming
            except _closed() as error:
                late = f"{self._server} gave no answer within {self.patience.message_s:g} s"
                cut = f"The session on {self._server} was cut: {error}"
                raise SessionLostError(late if deadline.passed else cut) from None
            finally:
                deadline.stop()
                gate.measure.in_flight_s += time.monotonic() - began
                gate.measure.messages += 1
        gate.measure.bytes_sent += len(text)
        gate.measure.bytes_received += len(answer)
        self._next = asyncio.create_task(connection.recv())
        return answer

    async def _pause(self, error: SessionLostError, pause: float, deadline: float) -> float:
        """Wait before the next attempt of a reset, or raise the error; returns the pause after that."""
        if isinstance(error, CapacityError):
            gate_of(self._server, self.limits).measure.refusals += 1
        # Drawn anew by every session, so that a restarted server is not met by all of them at once. It has no
        # effect on the data.
        drawn = random.SystemRandom().uniform(pause / 2, pause)
        if time.monotonic() + drawn >= deadline:
            if isinstance(error, CapacityError):
                raise error
            raise SessionLostError(f"{error} (tried for {self.patience.total_s:g} s)") from error
        await asyncio.sleep(drawn)
        return min(2 * pause, PAUSES_S[1])


@cache
def _closed() -> type[Exception]:
    """What the library raises on a connection that is over; imported by coroutines only."""
    from websockets.exceptions import ConnectionClosed

    return ConnectionClosed


@cache
def _connector() -> type[connect]:
    """What opens a connection, and does not follow a server to another: it would send our headers there.

    The library itself leaves out only those headers that it knows to be secret.
    """
    from websockets.asyncio.client import connect

    class SameOrigin(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            target = super().process_redirect(exc)
            said = refused_redirect(self.uri, target) if isinstance(target, str) else None
            return target if said is None else RemoteError(said)

    return SameOrigin


def _handshake_errors() -> tuple[type[Exception], ...]:
    from websockets.exceptions import InvalidHandshake, InvalidURI

    return InvalidHandshake, InvalidURI

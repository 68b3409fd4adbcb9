"""A small OpenEnv server in a thread of the test, which counts, keeps a log, and fails where a test says."""

from __future__ import annotations

import asyncio
import http
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from envs.loop_thread import LoopThread

LEGAL = 4
SCHEMA = {
    "action": {"properties": {"column": {"type": "integer"}, "force": {"type": "number"}}},
    "observation": {
        "properties": {
            name: {"type": "array"} for name in ("numbers", "legal_actions", "done", "reward", "metadata")
        }
        | {"text": {"type": "string"}}
    },
}


@dataclass
class Game:
    """Counts: numbers are [seed, task, t, sum of the columns]; it is over after `length` steps."""

    length: int = 5
    seed: int = 0
    task: float = 0.0
    t: int = 0
    total: float = 0.0

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        self.seed, self.task = data.get("seed") or 0, float(data.get("task", 0.0))
        self.t, self.total = 0, 0.0
        return self.observed(None)

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        self.t += 1
        self.total += float(data.get("column", data.get("force", 0)))
        return self.observed(self.total)

    def observed(self, reward: float | None) -> dict[str, Any]:
        observation = {
            "numbers": [self.seed % 1000, self.task, self.t, self.total],
            "text": f"step {self.t} of task {self.task:g}",
            "legal_actions": [one for one in range(LEGAL) if one != self.t % LEGAL],
        }
        return {"observation": observation, "reward": reward, "done": self.t >= self.length}


# (the number of the session, the message, how many messages it is) -> what happens instead of an answer:
# "hang", "cut", "garbage", "twice" (the answer, and again), "nonsense" (an answer without an observation), a
# number of seconds to wait before the answer, an error code, or None
Plan = Callable[[int, dict[str, Any], int], str | float | None]


@dataclass
class FakeServer:
    """Serves on 127.0.0.1 while it is entered; `restart` cuts every session, as kill -9 does."""

    plan: Plan = lambda session, message, index: None
    make: Callable[[], Any] = Game
    seats: int = 1000
    schema: dict[str, Any] = field(default_factory=lambda: SCHEMA)
    port: int = 0
    tls: ssl.SSLContext | None = None
    # Seconds between two pings, for which the answer to one is waited for, and then for a goodbye. (Ten is
    # what the library waits for that; uvicorn, which serves OpenEnv, cuts the line at once.)
    ping_s: float | None = 20.0
    # How long the answer to a ping is waited for, where that is another time.
    pong_s: float | None = None
    # (session, message) in the order of their arrival.
    log: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    sessions: int = 0
    open: set[int] = field(default_factory=set)
    most_open: int = 0
    # Sessions that found no seat.
    refused: int = 0

    def __enter__(self) -> Self:
        self._loop = LoopThread("fake server")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.end()
        self._loop.thread.join(60.0)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._loop.run(self._start())

    def stop(self) -> None:
        self._loop.run(self._stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def steps(self) -> list[tuple[int, dict[str, Any]]]:
        """The steps that arrived, each with its session."""
        return [(session, message["data"]) for session, message in self.log if message["type"] == "step"]

    async def _start(self) -> None:
        self._connections: set[ServerConnection] = set()
        self._server: Server = await serve(
            self._session,
            "127.0.0.1",
            self.port,
            compression=None,
            process_request=self._page,
            ssl=self.tls,
            ping_interval=self.ping_s,
            ping_timeout=self.pong_s or self.ping_s,
            close_timeout=self.ping_s,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def _stop(self) -> None:
        self._server.close(close_connections=False)
        for connection in self._connections:
            connection.transport.abort()
        await self._server.wait_closed()

    def _page(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers)
        pages = {"/health": {"status": "healthy"}, "/schema": self.schema}
        if request.path == "/ws":
            return None
        if request.path not in pages:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "{}")
        return connection.respond(http.HTTPStatus.OK, json.dumps(pages[request.path]))

    async def _session(self, connection: ServerConnection) -> None:
        number, self.sessions = self.sessions, self.sessions + 1
        self._connections.add(connection)
        try:
            with suppress(ConnectionClosed):
                if len(self.open) >= self.seats:
                    self.refused += 1
                    said = {"message": "at capacity", "code": "CAPACITY_REACHED", "max_sessions": self.seats}
                    await connection.send(json.dumps({"type": "error", "data": said}))
                    return
                self.open.add(number)
                self.most_open = max(self.most_open, len(self.open))
                await self._serve(connection, number, self.make())
        finally:
            self.open.discard(number)
            self._connections.discard(connection)

    async def _serve(self, connection: ServerConnection, number: int, game: Any) -> None:
        index = 0
        async for text in connection:
            message = json.loads(text)
            self.log.append((number, message))
            if message["type"] == "close":
                return
            planned, index = self.plan(number, message, index), index + 1
            if planned == "hang":
                await connection.wait_closed()
            elif planned == "cut":
                connection.transport.abort()
                return
            elif isinstance(planned, float):
                await asyncio.sleep(planned)
            answer = {"type": "observation", "data": getattr(game, message["type"])(message.get("data", {}))}
            if isinstance(planned, str) and planned.isupper():
                answer = {"type": "error", "data": {"message": "as planned", "code": planned}}
            elif planned == "nonsense":
                answer = {"type": "observation", "data": {"reward": 1.0}}
            await connection.send("{garbage" if planned == "garbage" else json.dumps(answer))
            if planned == "twice":
                await connection.send(json.dumps(answer))

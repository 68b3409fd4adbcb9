"""A fake server that has the Task API too, which is asked by POST: the pages of a server with datasets."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.envs.remote.fake_server import FakeServer, Game


class IndexedGame(Game):
    """The task is an entry of a split."""

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        number = data.get("index", 0) + 100 * (data.get("split") == "test")
        return super().reset(data | {"task": number})


@dataclass
class TaskApiServer(FakeServer):
    """Answers POST /maze/num_tasks itself, as OpenEnv does, and hands all else to the fake behind it."""

    make: Any = IndexedGame
    # How many tasks each split has; without any there is no such API.
    counts: dict[str, int] = field(default_factory=dict)
    # What was asked of it: the page, and the data.
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def _start(self) -> None:
        await super()._start()
        self._behind = self.port
        self._front = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = self._front.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._front.close()
        await super()._stop()
        await self._front.wait_closed()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST "):
                await self._answer(head.decode(), reader, writer)
            else:
                await self._hand_on(head, reader, writer)
        writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        data = json.loads(await reader.readexactly(int(headers["content-length"])))
        page = head.split(" ")[1]
        self.asked.append((page, data))
        status, said = "501 Not Implemented", {"detail": "no tasks"}
        if page == "/maze/num_tasks" and data["split"] in self.counts:
            status, said = "200 OK", {"num_tasks": self.counts[data["split"]]}
        body = json.dumps(said).encode()
        lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()

    async def _hand_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_it = await asyncio.open_connection("127.0.0.1", self._behind)
        to_it.write(head)
        await asyncio.gather(_copied(reader, to_it), _copied(behind, writer))


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()

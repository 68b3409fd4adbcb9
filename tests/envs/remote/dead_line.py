"""A line between two ends that goes dead without a word to either: a half-open socket, for tests."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class DeadLine:
    """A proxy that hands bytes on until it `dies`: then both ends stay open, and hear nothing more."""

    def __init__(self, port: int) -> None:
        self._to, self._dead = port, set[asyncio.StreamWriter]()
        self._writers: list[asyncio.StreamWriter] = []
        self._lines: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> DeadLine:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(line for line in self._lines if line is not None))

    def die(self) -> None:
        """Swallow everything on the lines that are there; new ones are in order."""
        self._dead = set(self._writers)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.add(asyncio.current_task())
        try:
            other_reader, other = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:  # nobody listens there now
            writer.transport.abort()
            return
        self._writers += [writer, other]
        await asyncio.gather(self._hand_on(reader, other), self._hand_on(other_reader, writer))

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if writer not in self._dead:
                    writer.write(data)
        if writer not in self._dead:
            writer.close()

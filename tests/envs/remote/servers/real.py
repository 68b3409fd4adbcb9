"""Real servers for tests: processes of this interpreter, which has OpenEnv, on ports of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from envs.remote.pages import is_healthy
from envs.remote.serving import ServedApp


@contextmanager
def serving(name: str) -> Iterator[ServedApp]:
    """A server of ours, watched: it is started again when it dies."""
    server = ServedApp(f"envs.remote.servers.{name}:app")
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.end()


def kill(server: ServedApp) -> None:
    """End the process as a crash does, and wait until another one answers."""
    assert server.pid is not None
    restarts = server.restarts
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 120.0
    while server.restarts == restarts or not is_healthy(server.url):
        assert time.monotonic() < deadline, "the server did not come back"
        time.sleep(0.05)

"""Real servers for tests: processes of this interpreter, which has OpenEnv, on ports of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envs.remote.pages import is_healthy
from envs.remote.serving import START_S, ServedApp, free_port

ROOT = Path(__file__).resolve().parents[4]


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


@contextmanager
def program(name: str, *words: str) -> Iterator[str]:
    """The address of a server that was started as a user starts it, with more words on its command line."""
    port = free_port()
    command = [sys.executable, "-m", f"envs.remote.servers.{name}", "--port", str(port), *words]
    process, url = subprocess.Popen(command, cwd=ROOT), f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not is_healthy(url):
            assert process.poll() is None and time.monotonic() < deadline, f"{command} does not answer"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def kill(server: ServedApp) -> None:
    """End the process as a crash does, and wait until another one answers."""
    assert server.pid is not None
    restarts = server.restarts
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + START_S
    while server.restarts == restarts or not is_healthy(server.url):
        assert time.monotonic() < deadline, "the server did not come back"
        time.sleep(0.05)

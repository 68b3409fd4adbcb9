"""Server processes of our own: started on free ports of this machine, watched, started again, and ended."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from importlib.util import find_spec

from envs.remote.pages import is_healthy
from utils.environment import passed_on
from utils.options import OptionError
from utils.processes.marks import put_mark
from utils.processes.warden import next_mark

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
# How long a server may take to import what it needs, which is a lot.
START_S = 180.0
END_S = 3.0
LOOK_S = 0.2
# A server that has ended so often is not started again; one that has never answered not even once.
MOST_RESTARTS = 5


@dataclass
class ServedApp:
    """One server process of `module:app`, on a port that stays the same when it is started again."""

    app: str
    port: int = 0
    restarts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _has_answered: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    # It has ended, and is not started again.
    _left_alone: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _watch: threading.Thread | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process that serves now."""
        return self._process and self._process.pid

    def start(self) -> None:
        """Start the process, and the thread that watches it; `wait` waits until it answers."""
        self.port = self.port or free_port()
        self._launch()
        self._watch = threading.Thread(target=self._look, name="watch over a server", daemon=True)
        self._watch.start()

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + START_S
        while self._left_alone.is_set() or not is_healthy(self.url):
            process = self._process
            if process is None or self._left_alone.is_set() or time.monotonic() > deadline:
                code = None if process is None else process.poll()
                ended = "" if code is None else f" and has ended with exit code {code}"
                raise OptionError(
                    f"serve={self.app} does not answer on {self.url}{ended}: what it wrote is above. "
                    f"Try it by hand: python -m uvicorn {self.app} --port {self.port}"
                )
            time.sleep(0.1)
        self._has_answered.set()

    def end(self) -> None:
        """End the process and its watch."""
        self._ending.set()
        if self._watch is not None:
            self._watch.join()
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _launch(self) -> None:
        # Another's code sees no more of the environment than an environment in a worker does.
        self._process = subprocess.Popen(
            command_of(self.app, self.port), env=passed_on(os.environ), stdin=subprocess.DEVNULL
        )
        # It ends with this process, however that ends.
        put_mark(self._process.pid, next_mark())

    def _look(self) -> None:
        while not self._ending.wait(LOOK_S):
            process = self._process
            if process is None or process.poll() is None:
                continue
            if not self._has_answered.is_set():
                self._left_alone.set()  # whoever waits for it says so
                return
            self.restarts += 1
            if self.restarts > MOST_RESTARTS:
                self._left_alone.set()
                _log.warning("The server %s has ended %d times, and is left alone.", self.app, self.restarts)
                return
            _log.warning("The server %s has ended (%s), and is started again.", self.app, process.returncode)
            self._launch()


# By what is served; they live as long as this process, since several families and runs may use them.
_served: dict[tuple[str, int], list[ServedApp]] = {}


def served_urls(app: str, count: int) -> tuple[str, ...]:
    """The addresses of so many servers of `module:app`, which are started if they do not run yet."""
    if (app, count) not in _served:
        module, _, name = app.partition(":")
        if not module or not name:
            raise OptionError(f"serve={app!r} should be module:app.")
        check_installed()
        servers = [ServedApp(app) for _ in range(count)]
        _served[app, count] = servers
        if len(_served) == 1:
            atexit.register(end_served)
        try:
            for server in servers:
                server.start()
            for server in servers:
                server.wait()
        except BaseException:
            end_served()
            raise
    return tuple(server.url for server in _served[app, count])


def end_served() -> None:
    """End all servers that were started here."""
    while _served:
        for server in _served.popitem()[1]:
            server.end()
    atexit.unregister(end_served)


def served() -> list[ServedApp]:
    """The servers that run now."""
    return [server for servers in _served.values() for server in servers]


def command_of(app: str, port: int) -> list[str]:
    """The command that serves an app."""
    command = [sys.executable, "-m", "uvicorn", app, "--host", HOST, "--port", str(port)]
    return [*command, "--log-level", "warning"]


def check_installed() -> None:
    """Refuse to serve where there is nothing to serve with."""
    if find_spec("uvicorn") is None:
        raise OptionError("serve= needs the package openenv with its server: pip install openenv.")


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])

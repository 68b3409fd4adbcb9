"""Environments for the tests of worker processes: big pictures, and ones that do to their process whatever a
test wants.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvSpec, Shard
from tests.toys import ACTION_DIM, OBS_DIM, TASK_DIM, CountingConfig, CountingFamily, CountingShard
from tests.toys_faulty import reply_pipe

# 100 kB: more than a pipe holds.
PICTURE = (160, 160, 4)


class PictureShard(CountingShard):
    """Counts, and shows a picture that is full of the count beside it."""

    def write(self, slots: NDArray[np.int64]) -> None:
        assert isinstance(self.rows.obs, dict)
        self.rows.obs["where"][slots] = self.coordinates(slots)
        self.rows.obs["picture"][slots] = (self.time[slots] + 10 * self.tasks[slots, 0]).astype(np.uint8)[
            :, None, None, None
        ]
        self.rows.info[slots, 0] = self.time[slots]

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        super().step(slots, actions.reshape(len(slots), -1)[:, :2])


class PictureFamily(CountingFamily):
    """Observations of 100 kB in a Dict; with `big_actions` the actions are as long."""

    def __init__(self, *, big_actions: bool = False) -> None:
        super().__init__(CountingConfig(falls=False))
        parts = {
            "where": spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32),
            "picture": spaces.Box(0, 255, PICTURE, np.uint8),
        }
        actions = spaces.Box(-1.0, 1.0, (30_000 if big_actions else ACTION_DIM,), np.float32)
        self.spec = EnvSpec("Picture", spaces.Dict(parts), actions, TASK_DIM, info_names=("t",))

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return PictureShard(num_slots, self.config)


class DoingShard(CountingShard):
    """Counts, and does something at the second step of an episode."""

    do: Callable[[], None]

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        super().step(slots, actions)
        if (self.time[slots] == 2).any():
            self.do()


class DoingFamily(CountingFamily):
    """A counting family that does something in its worker; unbuildable while the file `broken` exists."""

    def __init__(self, do: Callable[[], None], broken: str = "") -> None:
        super().__init__(CountingConfig(falls=False))
        self.do, self.broken = do, broken

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        if self.broken and os.path.exists(self.broken):
            raise ValueError("it is broken")
        shard = DoingShard(num_slots, self.config)
        shard.do = self.do
        return shard


def tell_the_birds() -> None:
    """Raise an error that holds this process's variables with a bird in them, those that it has and those
    that it was started with.
    """
    block = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    started = {name: value for name, _, value in (entry.partition("=") for entry in block)}
    birds = [
        {name: value for name, value in sorted(variables.items()) if "bird" in f"{name}{value}".lower()}
        for variables in (os.environ, started)
    ]
    raise ValueError(json.dumps(birds))


def make_noise() -> None:
    """Print 200 kB to both streams, log, and close them."""
    for stream in (sys.stdout, sys.stderr):
        stream.write("noise " * 33_000)
        stream.flush()
    logging.basicConfig()
    os.close(1)
    os.close(2)


class StartChildren:
    """Start a process and a thread that never end, and write the process's number to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self) -> None:
        threading.Thread(target=time.sleep, args=(1e6,)).start()
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"], close_fds=False)
        (Path(self.folder) / str(started.pid)).touch()


class Leave:
    """Start a thread that never ends, and leave the process by sys.exit."""

    def __init__(self, code: int | str | None) -> None:
        self.code = code

    def __call__(self) -> None:
        threading.Thread(target=threading.Event().wait).start()
        sys.exit(self.code)


class CutOff:
    """Start a thread that never ends, and close the pipe through which the worker answers."""

    def __call__(self) -> None:
        threading.Thread(target=threading.Event().wait).start()
        os.close(reply_pipe())


class ForkAndDie:
    """Leave a fork behind that holds copies of every descriptor, and die."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self) -> None:
        pid = os.fork()
        if not pid:
            time.sleep(1e6)
        (Path(self.folder) / str(pid)).touch()
        os._exit(5)


def nothing() -> None:
    """Do nothing."""


class LeaveProcesses:
    """Start processes that never end, in every way there is, and leave a file that says so.

    Each has the folder in its command or in the environment that it was started with: a variable holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self) -> None:
        command = ["/bin/sh", "-c", "sleep 1000; exit", self.folder]
        subprocess.Popen(command)
        subprocess.Popen(command, start_new_session=True, env={})
        if not os.fork():
            os.setsid()
            time.sleep(1e6)
        if not os.fork():  # the way of daemons
            os.setsid()
            if not os.fork():
                os.execve(command[0], command, {})
            os._exit(0)
        os.wait()
        (Path(self.folder) / f"left-{os.getpid()}").touch()

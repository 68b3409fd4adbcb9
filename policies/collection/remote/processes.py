"""Actors as processes of this machine, each connected by a socket."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import cast

import cloudpickle
import torch

from envs.backends.workers.isolation import SINGLE_THREAD
from envs.parallel_env_manager import WorkerError
from policies.collection.remote.actor import PlayedWave, WaveOrder
from policies.collection.remote.pool import WAIT_S, ActorPool
from policies.collection.wave import WaveInterrupted
from policies.run.config import Config
from utils.environment import passed_on
from utils.processes.imports import import_guards
from utils.processes.marks import put_mark
from utils.processes.warden import next_mark, remove_at_the_end

ROOT = str(Path(__file__).resolve().parents[3])
# The program of an actor; it imports from where this process does.
PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from policies.collection.remote.serve import main; main()"
# The parts of an order that are the same for all actors, and too large for a line.
SHARED = ("weights", "curriculum")
# The first byte of an answer: the actor can play, a wave, or what went wrong in the actor.
READY, WAVE, ERROR = b"R", b"W", b"E"


class _Process:
    """A process with one actor."""

    def __init__(self, config: Config, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        with theirs:
            # No secrets; and one thread each, since the actors are what works at the same time.
            environment = passed_on(os.environ) | SINGLE_THREAD | {"WANDB_MODE": "disabled"}
            words = str(theirs.fileno()), str(folder), ROOT, *filter(None, sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        # It ends with this process, however that ends.
        put_mark(self._process.pid, next_mark())
        self.pid = self._process.pid
        # When its present wave began; None until it is ready for its first.
        self.playing_since: float | None = None
        (folder / f"{self.pid}.config").write_bytes(cloudpickle.dumps((config, import_guards())))
        self.send("start", str(self.pid))

    def send(self, *words: str) -> None:
        """Send a line of words, short enough never to wait for the actor to read it."""
        try:
            self.connection.send_bytes(json.dumps(words).encode())
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended, which is found out where its answer is awaited

    def end(self) -> str:
        """End it now, whatever it does; how it has ended."""
        self.connection.close()
        self._process.kill()
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class ProcessPool(ActorPool):
    """Actors in processes, started with the first wave."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._processes: dict[int, _Process] = {}
        self._folder: Path | None = None
        self._shared = Path()

    @property
    def pids(self) -> list[int]:
        """The processes that are running now."""
        return [process.pid for process in self._processes.values()]

    def play(self, orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        # 1. What all orders share is written once, and each actor gets the rest of its order as a line.
        self._shared = self._files() / "shared"
        torch.save({name: dict(getattr(orders[0], name)) for name in SHARED}, self._shared)
        waves: dict[int, PlayedWave] = {}
        attempts = [0] * len(orders)
        for actor, order in enumerate(orders):
            self._begin(actor, order)

        # 2. Answers come in any order; the waves are returned in that of the actors.
        while len(waves) < len(orders):
            missing = [actor for actor in range(len(orders)) if actor not in waves]
            for actor in self._with_news(missing):
                lost = self._take_news(actor, waves)
                if lost is not None:
                    # 3. A lost actor is replaced, and its order is given again: the same bits come of it.
                    del self._processes[actor]
                    self.lose(actor, attempts[actor], lost)
                    attempts[actor] += 1
                    self._begin(actor, orders[actor])
            if len(waves) < len(orders) and stops():
                self.close()  # they are in the middle of a wave that nobody needs
                raise WaveInterrupted
        return [waves[actor] for actor in range(len(orders))]

    def _with_news(self, missing: Sequence[int]) -> list[int]:
        """The actors that have something to say, or that have been silent for too long."""
        connections = {self._processes[actor].connection: actor for actor in missing}
        ready = {connections[cast(Connection, one)] for one in wait(list(connections), WAIT_S)}
        return [actor for actor in missing if actor in ready or self._is_late(actor)]

    def _is_late(self, actor: int) -> bool:
        limit, since = self.config.collector.timeout_s, self._processes[actor].playing_since
        return limit is not None and since is not None and monotonic() - since > limit

    def _take_news(self, actor: int, waves: dict[int, PlayedWave]) -> str | None:
        """Put the actor's wave into `waves`, if that is what it says; where it is lost, why."""
        process = self._processes[actor]
        try:
            if not process.connection.poll():
                process.end()
                return f"no wave within collector.timeout_s={self.config.collector.timeout_s:g}"
            answer = process.connection.recv_bytes()
        except (EOFError, OSError):
            return process.end()
        if answer[:1] == READY:
            process.playing_since = monotonic()  # until then it has imported and built what it needs
        elif answer[:1] == WAVE:
            waves[actor] = PlayedWave.from_bytes(answer[1:])
        else:
            raise WorkerError(f"Actor {actor} failed:\n{answer[1:].decode(errors='replace')}")
        return None

    def close(self) -> None:
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _begin(self, actor: int, order: WaveOrder) -> None:
        if actor not in self._processes:
            self._processes[actor] = _Process(self.config, self._files())
        process = self._processes[actor]
        if process.playing_since is not None:  # it has been ready since an earlier wave
            process.playing_since = monotonic()
        words = {name: value for name, value in vars(order).items() if name not in SHARED}
        process.send("play", str(self._shared), json.dumps(words))

    def _files(self) -> Path:
        """The folder of what is too large for a line."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="retrial-actors-"))
            remove_at_the_end(str(self._folder))
        return self._folder

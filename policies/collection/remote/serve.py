"""The other side of an actor's socket: what the process of an actor runs."""

from __future__ import annotations

import json
import pickle
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from policies.collection.remote.actor import CollectingActor, WaveOrder
from policies.collection.remote.processes import ERROR, READY, WAVE
from utils.processes.imports import keep_import_guards


def main() -> None:
    """Answer orders until the other side closes the socket."""
    # Ctrl-C reaches the whole terminal; when to end is the trainer's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError), Connection(int(sys.argv[1])) as connection:
        _serve(connection, Path(sys.argv[2]))


def _serve(connection: Connection, folder: Path) -> None:
    actor: CollectingActor | None = None
    while True:
        verb, *words = json.loads(connection.recv_bytes())
        try:
            if verb == "start":
                config, guards = pickle.loads((folder / f"{words[0]}.config").read_bytes())
                keep_import_guards(guards)
                actor = CollectingActor(config, config.collector.actors)
                answer = READY
            else:
                assert actor is not None, "the first line starts the actor"
                order = torch.load(words[0], weights_only=True) | json.loads(words[1])
                answer = WAVE + actor.play(WaveOrder(**order)).to_bytes()
        except Exception:  # noqa: BLE001 - whatever goes wrong here goes wrong in the trainer
            answer = ERROR + traceback.format_exc().encode()
        connection.send_bytes(answer)

"""The actor's side of the socket: errors are answered, and the end of the socket ends it."""

from __future__ import annotations

import json
import socket
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from policies.collection.remote import serve
from policies.collection.remote.processes import ERROR


def test_an_order_that_cannot_be_played_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)  # which only the main thread may call
    monkeypatch.setattr(sys, "argv", ["-c", str(theirs.detach()), str(tmp_path)])
    serving = threading.Thread(target=serve.main)
    serving.start()
    with Connection(ours.detach()) as connection:
        connection.send_bytes(json.dumps(["start", "7"]).encode())  # there is no such config
        answer = connection.recv_bytes()
        assert answer.startswith(ERROR) and b"7.config" in answer
    serving.join(30)
    assert not serving.is_alive()

"""The command line of the servers: where they listen."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from envs.remote.servers.command import serve


def test_a_server_listens_on_this_machine_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    fake = ModuleType("uvicorn")
    fake.run = lambda app, **settings: told.append((app, settings))  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "uvicorn", fake)
    serve("app", "What it is.", ["--port", "9"])
    serve("app", "What it is.", ["--host", "::1"])
    assert [(app, s["host"], s["port"]) for app, s in told] == [("app", "127.0.0.1", 9), ("app", "::1", 8000)]

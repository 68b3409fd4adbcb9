"""The command line of the servers: where they listen, how many seats they have, how often they ping."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from envs.remote.servers.command import serve


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What uvicorn was told to run."""
    found: list[Any] = []
    fake = ModuleType("uvicorn")
    fake.run = lambda app, **settings: found.append((app, settings))  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "uvicorn", fake)
    return found


def app_with(max_concurrent_envs: int) -> str:
    return f"an app with {max_concurrent_envs} seats"


def test_a_server_listens_on_this_machine_unless_told_otherwise(told: list[Any]) -> None:
    serve(app_with, "What it is.", ["--port", "9"])
    serve(app_with, "What it is.", ["--host", "::1"])
    assert [(settings["host"], settings["port"]) for _, settings in told] == [("127.0.0.1", 9), ("::1", 8000)]


def test_seats_and_pings_are_told_by_the_command_or_by_the_environment(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(app_with, "What it is.", [])
    serve(app_with, "What it is.", ["--seats", "20", "--ping-s", "1"])
    monkeypatch.setenv("RETRIAL_SEATS", "3")
    serve(app_with, "What it is.", [])
    assert [app for app, _ in told] == [app_with(1024), app_with(20), app_with(3)]
    assert [(settings["ws_ping_interval"], settings["ws_ping_timeout"]) for _, settings in told] == [
        (20.0, 20.0),
        (1.0, 1.0),
        (20.0, 20.0),
    ]


def test_no_seats_are_refused(
    told: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        serve(app_with, "What it is.", ["--seats", "0"])
    assert "0 is no number of seats: it has to be 1 at least" in capsys.readouterr().err
    monkeypatch.setenv("RETRIAL_SEATS", "many")
    with pytest.raises(ValueError, match="RETRIAL_SEATS=many is no number of seats"):
        serve(app_with, "What it is.", [])
    assert not told

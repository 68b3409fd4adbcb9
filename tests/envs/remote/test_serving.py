"""Servers that are started here: on free ports, started again when they die, ended with everything."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from envs.remote import serving
from envs.remote.pages import is_healthy
from envs.remote.serving import end_served, served, served_urls
from utils.options import OptionError

# A server that knows one page, in place of uvicorn.
PROGRAM = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""

# The app of every process that was started.
STARTED: list[str] = []


@pytest.fixture(autouse=True)
def small_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def command(app: str, port: int) -> list[str]:
        STARTED.append(app)
        return [sys.executable, "-c", PROGRAM if app == "good:app" else "raise SystemExit(3)", str(port)]

    STARTED.clear()
    monkeypatch.setattr(serving, "command_of", command)
    monkeypatch.setattr(serving, "check_installed", lambda: None)
    yield
    end_served()


def test_servers_have_ports_of_their_own_and_are_started_once() -> None:
    urls = served_urls("good:app", 2)
    assert len(set(urls)) == 2 and all(map(is_healthy, urls))
    assert served_urls("good:app", 2) == urls and len(served()) == 2
    end_served()
    assert not any(map(is_healthy, urls)) and not served()


def test_a_server_that_is_killed_is_started_again_on_its_port() -> None:
    (url,) = served_urls("good:app", 1)
    pid = served()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    while served()[0].restarts == 0 or not is_healthy(url):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert served()[0].pid != pid


def test_a_server_that_cannot_start_is_one_sentence_and_leaves_none_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = r"serve=bad:app does not answer on http://127\.0\.0\.1:\d+ and has ended with exit code 3: what it"
    with pytest.raises(OptionError, match=said):
        served_urls("bad:app", 1)
    assert not served()
    # What has never answered would fail the same way again, and write its reason once more.
    assert STARTED == ["bad:app"] and not caplog.text
    with pytest.raises(OptionError, match="'good' should be module:app"):
        served_urls("good", 1)

"""The pages of a server: read as JSON, missing ones are None, and a server that is away is one sentence."""

from __future__ import annotations

import pytest

from envs.remote.pages import get_json, is_healthy, post_json
from envs.remote.protocol import RemoteError
from tests.envs.remote.fake_server import SCHEMA, FakeServer
from tests.envs.remote.redirecting import redirecting

SECRET = {"Authorization": "Bearer secret", "X-Key": "secret"}


def test_pages_of_a_server_that_is_there_and_of_one_that_is_not() -> None:
    with FakeServer() as server:
        assert is_healthy(server.url) and get_json(server.url, "schema", {"X-Key": "1"}) == SCHEMA
        assert server.headers[-1]["X-Key"] == "1"
        assert get_json(server.url, "nothing", {}) is None
    assert not is_healthy(server.url)
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:\d+ cannot be read"):
        get_json(server.url, "schema", {})
    with pytest.raises(RemoteError, match="cannot be read"):
        post_json(server.url, "maze/num_tasks", {}, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_headers_are_not_sent_to_a_server_that_another_one_names(host: str) -> None:
    """Another port is another server, and so is another name of the same machine."""
    with FakeServer() as other, redirecting(f"http://{host}:{other.port}/schema") as url:
        for ask in (get_json, lambda *to: post_json(to[0], to[1], {}, to[2])):
            with pytest.raises(RemoteError, match=rf"{url} redirects to http://{host}:{other.port}, which"):
                ask(url, "schema", SECRET)
        assert not is_healthy(url)
        assert not other.headers
    with redirecting("ftp://somewhere/schema") as url, pytest.raises(RemoteError, match="redirects to what"):
        get_json(url, "schema", SECRET)


def test_a_server_that_names_another_of_its_pages_is_followed() -> None:
    with redirecting("/schema/", page="/schema/") as url:
        assert get_json(url, "schema", SECRET) == {}

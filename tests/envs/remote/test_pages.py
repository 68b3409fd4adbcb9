"""The pages of a server: read as JSON, missing ones are None, and a server that is away is one sentence."""

from __future__ import annotations

import pytest

from envs.remote.pages import get_json, is_healthy, post_json
from envs.remote.protocol import RemoteError
from tests.envs.remote.fake_server import SCHEMA, FakeServer


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

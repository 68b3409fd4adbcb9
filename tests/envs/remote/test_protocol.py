"""What is sent, what an answer means, and that addresses are shown without secrets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from envs.remote.protocol import (
    CallRefusedError,
    CapacityError,
    SessionLostError,
    UnsendableError,
    http_url,
    read_answer,
    read_state,
    refused_redirect,
    request,
    shown_url,
    websocket_url,
)
from utils.options import OptionError


def answer(**data: Any) -> str:
    return json.dumps({"type": "observation", "data": {"observation": {"x": 1}, **data}})


@pytest.mark.parametrize(
    ("url", "socket", "page"),
    [
        ("http://host:8000", "ws://host:8000/ws", "http://host:8000/schema"),
        ("https://space.example/", "wss://space.example/ws", "https://space.example/schema"),
        ("ws://host:1/ws", "ws://host:1/ws", "http://host:1/schema"),
        ("wss://host/base", "wss://host/base/ws", "https://host/base/schema"),
        ("http://[::1]:80", "ws://[::1]:80/ws", "http://[::1]:80/schema"),
    ],
)
def test_the_addresses_of_a_server(url: str, socket: str, page: str) -> None:
    assert websocket_url(url) == socket and http_url(url, "schema") == page


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://x:0", "http://x:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match=r"is no address of a server: write it as http://127\.0\.0\.1:8000"):
        websocket_url(url)


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    assert shown_url("https://me:secret@host:8000/base?token=secret") == "https://host:8000"


def test_a_request_holds_plain_json() -> None:
    assert request("step", {"column": 3}) == '{"type":"step","data":{"column":3}}'
    assert request("state") == '{"type":"state"}'


def test_numbers_and_arrays_of_numpy_are_sent_as_numbers_and_lists() -> None:
    """An action that comes out of an array is no `int` of Python, and looks like one."""
    sent = {
        "column": np.int64(3),
        "force": np.float32(0.5),
        "jump": np.bool_(True),
        "aim": np.array([[1, 2], [3, 4]]),
        "deep": {"list": [np.uint8(7), np.array(2.5)]},
        "odd": np.array([np.int8(1), "two"], object),
        "long": np.longdouble(1.5),
    }
    assert json.loads(request("step", sent))["data"] == {
        "column": 3,
        "force": 0.5,
        "jump": True,
        "aim": [[1, 2], [3, 4]],
        "deep": {"list": [7, 2.5]},
        "odd": [1, "two"],
        "long": 1.5,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (np.float32("inf"), "inf"),
        ({1, 2}, "{1, 2}"),
        (b"raw", "b'raw'"),
        ([{"deep": 1j}], "[{'deep': 1j}]"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_what_json_cannot_hold_is_a_sentence_that_names_its_field(value: Any, shown: str) -> None:
    with pytest.raises(UnsendableError) as caught:
        request("step", {"column": 3, "force": value})
    said = str(caught.value)
    assert said.startswith("The field 'force' of a step is ") and "which JSON cannot hold: " in said
    assert shown in said and "\n" not in said


@pytest.mark.parametrize(
    ("target", "is_followed"),
    [
        ("http://host/other", True),
        ("ws://HOST:80/other", True),
        ("https://host/other", False),
        ("http://host:8000/other", False),
        ("http://other/", False),
    ],
)
def test_a_redirect_is_followed_to_the_same_server_alone(target: str, is_followed: bool) -> None:
    said = refused_redirect("http://me:secret@host/base", target)
    assert (said is None) == is_followed
    assert said is None or (said.startswith("http://host redirects to ") and "secret" not in said)


def test_what_an_answer_holds() -> None:
    read = read_answer(answer(reward=True, done=True, metadata={"truncated": True}), "s")
    assert (read.observation, read.reward, read.done, read.truncated) == ({"x": 1}, 1.0, True, True)
    assert read_answer(answer(), "s").reward is None
    # A flag that is not True, or an episode that goes on, is no truncation.
    assert not read_answer(answer(done=True, metadata={"truncated": "no"}), "s").truncated
    assert not read_answer(answer(metadata={"truncated": True}), "s").truncated
    inside = json.dumps({"type": "observation", "data": {"observation": {"metadata": {"a": 1}}}})
    assert read_answer(inside, "s").metadata == {"a": 1}
    assert read_state('{"type": "state", "data": {"step_count": 3}}', "s") == {"step_count": 3}


@pytest.mark.parametrize(
    "text",
    [
        "{garbage",
        "[]",
        '{"type": "observation"}',
        '{"type": "state", "data": {}}',
        '{"type": "observation", "data": {"observation": 3}}',
        answer(done=2),
        answer(reward="much"),
        '{"type": "error", "data": {"message": "m", "code": "SESSION_ERROR"}}',
        b"\xff\xfe",
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_session(text: str | bytes) -> None:
    with pytest.raises(SessionLostError):
        read_answer(text, "s")


def test_errors_mean_what_their_codes_say() -> None:
    full = '{"type":"error","data":{"message":"m","code":"CAPACITY_REACHED","max_sessions":8}}'
    with pytest.raises(CapacityError, match="s answered CAPACITY_REACHED: m") as caught:
        read_answer(full, "s")
    assert caught.value.seats == 8
    bad = '{"type":"error","data":{"message":"m","code":"VALIDATION_ERROR","errors":[{"loc":["column"]}]}}'
    with pytest.raises(CallRefusedError, match=r"VALIDATION_ERROR: m.*column"):
        read_answer(bad, "s")

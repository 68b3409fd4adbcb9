"""Messages are read whole however a pipe cuts them; half a message is none, and a false one is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from envs.backends.workers.messages import (
    CHUNK,
    REPLY,
    REQUEST,
    SHAPE,
    TEXT_LIMIT,
    ErrorReport,
    MalformedMessage,
    Message,
    MessageKind,
    MessageReader,
    Status,
    describe_error,
    pack_picture,
    read_error,
    read_picture,
    token_of,
    write_whole,
)
from envs.base import SlotError
from tests.toys_faulty import SpeechlessError, UnpicklableError, go_wrong


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


def request(token: int, body: bytes) -> bytes:
    """A request as the trainer writes it."""
    return REQUEST.pack(token, MessageKind.RUN, 0, 1, 2, len(body)) + body


def read_all(reader: MessageReader) -> list[Message]:
    """Every message until the pipe ends."""
    found: list[Message] = []
    while True:
        try:
            found += reader.receive()
        except EOFError:
            return found


@pytest.mark.parametrize("piece", [1, 7, 32, 40, 10_000])
def test_messages_are_read_whole_however_the_pipe_cuts_them(
    pipe: tuple[int, int], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.write(pipe[1], request(1, b"") + request(2, b"payload") + request(3, b"x" * 50))
    os.close(pipe[1])
    whole = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, _: whole(descriptor, piece))
    found = [(fields[0], fields[3:5], body) for fields, body in read_all(MessageReader(pipe[0], REQUEST))]
    assert found == [(1, (1, 2), b""), (2, (1, 2), b"payload"), (3, (1, 2), b"x" * 50)]


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, 5 * CHUNK + 3])
def test_long_messages_are_read_whole_too(pipe: tuple[int, int], size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    data = request(1, b"short") + request(2, body) + request(3, body) + request(4, b"")

    def write() -> None:
        write_whole(pipe[1], data)
        os.close(pipe[1])

    writer = threading.Thread(target=write)
    writer.start()
    found = read_all(MessageReader(pipe[0], REQUEST))
    writer.join()
    assert [(fields[0], bytes(read)) for fields, read in found] == [
        (1, b"short"),
        (2, body),
        (3, body),
        (4, b""),
    ]


@pytest.mark.parametrize("size", [10, 3 * CHUNK])
def test_half_a_message_is_not_a_message(pipe: tuple[int, int], size: int) -> None:
    data = request(1, b"") + request(2, b"x" * size)[:60]
    os.write(pipe[1], data[:-1])
    os.close(pipe[1])
    assert [fields[0] for fields, _ in read_all(MessageReader(pipe[0], REQUEST))] == [1]


def test_nothing_to_read_is_no_message_and_no_end(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[0], False)
    reader = MessageReader(pipe[0], REPLY)
    assert reader.receive() == []
    os.write(pipe[1], REPLY.pack(7, Status.DONE, 2 * CHUNK) + b"x")
    assert reader.receive() == []
    assert reader.receive() == []
    os.close(pipe[1])
    with pytest.raises(EOFError):
        reader.receive()


def test_a_message_beyond_the_limit_is_refused_before_it_is_read(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], REPLY.pack(1, Status.DONE, 1 << 60))
    os.close(pipe[1])
    with pytest.raises(ValueError, match="a message of 1152921504606846976 bytes"):
        MessageReader(pipe[0], REPLY, limit=1 << 20).receive()


def test_tokens_grow_with_requests_and_with_generations() -> None:
    assert token_of(0, 5) < token_of(0, 6) < token_of(1, 0) < token_of(1, 6) < token_of(2, 1)


# -- what replies carry besides rows -------------------------------------------------------------------------


def described(error: BaseException) -> ErrorReport:
    """An error after its way from the worker to the trainer."""
    text = describe_error(error)
    assert len(text) <= TEXT_LIMIT
    return read_error(text)


def test_an_error_arrives_with_type_message_traceback_and_slot() -> None:
    with pytest.raises(SlotError) as caught:
        try:
            go_wrong("raise")
        except ValueError as error:
            raise SlotError(3, "broken") from error
    report = described(caught.value)
    assert (report.type_name, report.message, report.slot) == ("SlotError", "broken", 3)
    assert "in go_wrong" in report.traceback and "ValueError: the toy is broken" in report.traceback


@pytest.mark.parametrize(
    "error",
    [
        UnpicklableError("cannot be sent", object()),
        SpeechlessError(),
        ValueError("x" * 50_000_000),
        ValueError("\x00" * 100_000),
        ValueError("\U0001f9ea" * 100_000),
        ValueError("\ud800 is half a letter"),
        ExceptionGroup("many", [ValueError("one" * 10_000), ValueError("two" * 10_000)] * 20),
        type("E" * 100_000, (Exception,), {})("a long name"),
    ],
    ids=["unpicklable", "speechless", "huge", "control", "emoji", "surrogate", "group", "name"],
)
def test_any_error_becomes_bounded_text(error: Exception) -> None:
    assert described(error).type_name[:1] == type(error).__name__[:1]


def test_a_picture_arrives_as_it_was_drawn() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    np.testing.assert_array_equal(read_picture(pack_picture(pixels[::-1])), pixels[::-1])


@pytest.mark.parametrize("body", [b"", b"x" * 11, SHAPE.pack(1, 1, 3) + b"xx", SHAPE.pack(0, 1, 3)])
def test_bytes_that_are_no_picture_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="picture"):
        read_picture(body)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b"[]",
        b"[" * 50_000,
        b"{}",
        b'{"type": "E", "message": 1, "traceback": "", "slot": null}',
        b'{"type": "E", "message": "", "traceback": "", "slot": "0"}',
    ],
)
def test_bytes_that_are_no_error_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="error"):
        read_error(body)

"""The worker's side of the pipes: requests cut anywhere, errors as bounded text, and a process that keeps to itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np
import pytest

from envs.backends.base import BackendConfig, StartMethod
from envs.backends.worker import REQUEST, TEXT_LIMIT, Kind, describe_error, inside_worker, read_requests
from envs.base import SlotError
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.toys import FaultyFamily, SpeechlessError, UnpicklableError, go_wrong


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


def frame(sequence: int, steps: list[int], resets: list[int], payload: bytes = b"") -> bytes:
    """A request as the trainer writes it."""
    head = REQUEST.pack(sequence, Kind.RUN, len(steps), len(resets), len(payload))
    return head + np.array(steps + resets, np.int64).tobytes() + payload


@pytest.mark.parametrize("piece", [1, 7, 24, 40, 10_000])
def test_requests_are_read_whole_however_the_pipe_cuts_them(pipe: tuple[int, int], piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame(1, [4, 5], []) + frame(2, [], [4], b"payload") + frame(3, [5], [4], b"x" * 50)
    os.write(pipe[1], data)
    os.close(pipe[1])
    whole = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, _: whole(descriptor, piece))
    found = [(sequence, steps.tolist(), resets.tolist(), payload) for sequence, _, steps, resets, payload in read_requests(pipe[0])]
    assert found == [(1, [4, 5], [], b""), (2, [], [4], b"payload"), (3, [5], [4], b"x" * 50)]


def test_half_a_request_is_not_a_request(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], frame(1, [4], []) + frame(2, [4], [])[:-1])
    os.close(pipe[1])
    assert [request[0] for request in read_requests(pipe[0])] == [1]


def told(error: BaseException) -> dict[str, object]:
    """What a worker says of an error."""
    text = describe_error(error)
    assert len(text) <= TEXT_LIMIT
    return json.loads(text)


def test_an_error_is_told_with_type_message_traceback_and_slot() -> None:
    with pytest.raises(SlotError) as caught:
        try:
            go_wrong("raise")
        except ValueError as error:
            raise SlotError(3, "broken") from error
    facts = told(caught.value)
    assert (facts["type"], facts["message"], facts["slot"]) == ("SlotError", "broken", 3)
    assert "in go_wrong" in str(facts["traceback"]) and "ValueError: the toy is broken" in str(facts["traceback"])


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
    assert str(told(error)["type"])[:1] == type(error).__name__[:1]


@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork])
def test_a_worker_is_deaf_to_ctrl_c_single_threaded_and_light(method: StartMethod) -> None:
    manager = ParallelEnvManager(FaultyFamily(fault="tell", where="reset"), 2, num_workers=2, backend=BackendConfig(start_method=method))
    with manager, pytest.raises(WorkerError) as caught:
        manager.reset()
    seen = json.loads(str(caught.value).split("raised ValueError: ", 1)[1].splitlines()[0])
    assert (seen["ignored"], seen["blocked"], seen["stdin"]) == (["SIGINT", "SIGTERM"], [], "/dev/null")
    assert seen["variables"] == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    assert method is StartMethod.fork or seen["heavy"] == []


def test_this_process_is_no_worker() -> None:
    assert not inside_worker()

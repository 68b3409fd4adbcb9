"""An environment in the trainer's process that changes what they share is told once, by name, and never by
the value of a variable.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from envs.backends.surroundings import Surroundings
from tests.toys_async import Driver, HookedFamily

BACKENDS = ["serial", "thread", "asyncio"]


@pytest.fixture
def put_back(tmp_path: Path) -> Iterator[Path]:
    """What a test changes is as it was afterwards."""
    folder, variables, state = os.getcwd(), dict(os.environ), np.random.get_state()
    handler, timeout = signal.getsignal(signal.SIGUSR2), socket.getdefaulttimeout()
    yield tmp_path
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    np.random.set_state(state)
    signal.signal(signal.SIGUSR2, handler)
    socket.setdefaulttimeout(timeout)


CHANGES: dict[str, Callable[[Path], object]] = {
    "the working directory (from ": lambda folder: os.chdir(folder),
    "environment variables (A_TOKEN)": lambda folder: os.environ.update(A_TOKEN="secret"),
    "signal handlers (SIGUSR2)": lambda folder: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "numpy's global random numbers": lambda folder: np.random.seed(0),
    "the default time-out of sockets (from None to 3.0)": lambda folder: socket.setdefaulttimeout(3.0),
}


@pytest.mark.parametrize("text", CHANGES)
def test_each_change_is_named_once(text: str, put_back: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = Surroundings()
    seen.compare("at first")
    assert not caplog.text
    CHANGES[text](put_back)
    seen.compare("while they were built")
    assert (
        f"The environments changed, while they were built, what they share with the trainer: {text}"
        in caplog.text
    )
    assert "secret" not in caplog.text
    seen.compare("later")
    assert len(caplog.records) == 1


def test_what_the_trainer_changes_between_the_looks_is_its_own_business(
    put_back: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Surroundings()
    for change in CHANGES.values():
        change(put_back)
    seen.look()
    seen.compare("in their first reset")
    assert not caplog.text


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("where", "when"),
    [
        ("make_shard", "while they were built"),
        ("reset", "in their first reset"),
        ("close", "while they were closed"),
    ],
)
def test_backends_in_this_process_look_when_environments_are_built_reset_and_closed(
    name: str, where: str, when: str, put_back: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(place: str, t: int, task: float) -> None:
        if place == where:
            os.environ["A_TOKEN"] = "secret"

    with caplog.at_level(logging.WARNING), Driver(name, HookedFamily(hook), 2) as driver:
        driver.reset()
        os.environ["OF_THE_TRAINER"] = "1"
        driver.call()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"The environments changed, {when}, what they share with the trainer"
    ]
    assert "(A_TOKEN)" in caplog.text


@pytest.mark.parametrize("name", BACKENDS)
def test_a_step_is_not_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Driver(name, HookedFamily(lambda *_: None), 2) as driver:
        driver.reset()
        monkeypatch.setattr("envs.backends.surroundings._look", None)
        assert driver.call()[1] == []
        monkeypatch.undo()

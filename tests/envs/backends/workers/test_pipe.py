"""Rows in messages: as many bytes as they like, both ways at once, and as many descriptors as there are
workers.
"""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from envs.backends.base import BackendConfig, Block, Commands
from envs.backends.workers.pipe import PipeBackend
from envs.backends.workers.process import ProcessBackend
from envs.layout import Layout
from tests.envs.backends.troubles import PictureFamily
from tests.toys import CountingConfig, CountingFamily

SLOTS = 6
EVERYONE = np.arange(SLOTS)


@pytest.mark.parametrize("kind", [ProcessBackend, PipeBackend])
@pytest.mark.parametrize("workers", [1, 3])
def test_pictures_and_actions_larger_than_a_pipe_pass_each_other(
    kind: type[ProcessBackend], workers: int
) -> None:
    family = PictureFamily(big_actions=True)
    backend = kind(
        [Block(lambda: family, 0, SLOTS)],
        Layout(family.spec),
        num_workers=workers,
        num_groups=2,
        config=BackendConfig(call_timeout_s=20.0),
    )
    commands = Commands.empty(backend.rows)
    commands.reset[:] = True
    commands.task[:, 0] = EVERYONE
    try:
        backend.post(EVERYONE, commands)
        assert not backend.wait(EVERYONE, 20.0)[1]
        commands.reset[:] = False
        for count in range(1, 4):
            commands.action[:] = count
            for slot in EVERYONE:  # many requests before any answer is read: both pipes of a worker fill
                backend.post(EVERYONE[slot : slot + 1], commands)
            assert not backend.wait(EVERYONE, 20.0)[1]
            obs = backend.rows.obs
            assert isinstance(obs, dict)
            assert (obs["picture"] == (count + 10 * EVERYONE)[:, None, None, None]).all()
            assert obs["where"][:, 4].tolist() == [count * (count + 1) / 2] * SLOTS
            assert backend.rows.reward.tolist() == (2 * count + 100 * EVERYONE).tolist()
    finally:
        backend.close()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process")
@pytest.mark.parametrize("min_ready", [None, 1])
def test_a_long_reply_that_began_in_time_is_waited_for(
    min_ready: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline has passed, and the worker, blocked in writing, goes on only after the trainer has read a
    first piece.
    """
    monkeypatch.setattr("envs.backends.workers.process.CHECK_ALIVE_MS", 20_000)
    family, slots = PictureFamily(), np.arange(2)
    backend = PipeBackend(
        [Block(lambda: family, 0, 2)],
        Layout(family.spec),
        num_workers=1,
        config=BackendConfig(call_timeout_s=20.0),
    )
    (worker,) = backend._workers
    try:
        commands = Commands.empty(backend.rows)
        commands.reset[:] = True
        backend.post(slots, commands)
        assert worker.poll.poll(20_000)
        os.kill(worker.pid, signal.SIGSTOP)
        worker._waiting_since -= 100.0
        monkeypatch.setattr(worker, "check_alive", lambda: os.kill(worker.pid, signal.SIGCONT))
        ready, faults = backend.wait(slots, 20.0, min_ready)
        assert (ready.tolist(), faults) == ([0, 1], [])
    finally:
        backend.close()


def test_the_description_says_how_the_rows_travel() -> None:
    family = CountingFamily()
    backend = PipeBackend(
        [Block(lambda: family, 0, 2)], Layout(family.spec), num_workers=2, config=BackendConfig()
    )
    backend.close()
    assert backend.description == "2 worker processes (forkserver), rows through pipes"


@pytest.mark.parametrize("kind", [ProcessBackend, PipeBackend])
def test_descriptors_grow_with_workers_and_not_with_slots(kind: type[ProcessBackend]) -> None:
    def open_files(slots: int, workers: int) -> int:
        family = CountingFamily(CountingConfig(falls=False))
        backend = kind(
            [Block(lambda: family, 0, slots)],
            Layout(family.spec),
            num_workers=workers,
            config=BackendConfig(),
        )
        found = len(os.listdir("/dev/fd"))
        backend.close()
        return found

    open_files(2, 1)  # the first one starts the forkserver
    assert open_files(4, 2) == open_files(400, 2)
    assert 0 < open_files(4, 4) - open_files(4, 2) <= 2 * 4, "up to four for each worker"

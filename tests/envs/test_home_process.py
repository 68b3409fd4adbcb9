"""A fork of an environment that comes back is ended, on every backend, and touches nothing before that."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs import home_process
from envs.backends import BACKENDS
from envs.base import Shard
from envs.home_process import HomeProcess
from tests import toys_faulty
from tests.faults import DEADLINE_S, TOY, fault_free, faulty, happened, manage, played
from tests.toys_faulty import FaultyFamily, FaultyShard, one_more, whole


@pytest.fixture(autouse=True)
def reap() -> Iterator[None]:
    """Wait for the children that environments of this process have forked."""
    yield
    while toys_faulty.forked:
        os.waitpid(toys_faulty.forked.pop(), 0)


@pytest.mark.parametrize("raises", [False, True])
def test_only_the_home_process_comes_out(raises: bool) -> None:
    home, pid = HomeProcess(), -1
    try:
        with home:
            pid = os.fork()
            if raises and not pid:
                raise ValueError("the child is broken")
    except ValueError:
        os._exit(7)
    if not pid:
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_it_is_told_once_whichever_fork_comes_first(tmp_path: Path) -> None:
    home_process._told[0] = 0
    handler = logging.FileHandler(tmp_path / "log")
    logging.getLogger(home_process.__name__).addHandler(handler)
    try:
        home = HomeProcess()
        for _ in range(2):
            with home:
                pid = os.fork()
            os.waitpid(pid, 0)
    finally:
        logging.getLogger(home_process.__name__).removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text().count(f"An environment forked process {os.getpid()}, and") == 1


@pytest.mark.parametrize("fault", ["fork_and_return", "fork_and_raise"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_fork_that_comes_back_changes_nothing(name: str, fault: str, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, fault, times=3), name) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 3 and manager.faults.restarts == 0


class ScribblingShard(FaultyShard):
    """Forks, and the child writes nonsense into all that it can reach while the parent goes on."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        super().step(slots, actions)
        if (self.time[slots] == 3).any() and one_more(self._faulty.folder, "failure", 1) and not os.fork():
            until = time.monotonic() + DEADLINE_S
            while time.monotonic() < until:
                for array in self.rows.of_shard:
                    whole(array)[...] = np.ones((), array.dtype)


class ScribblingFamily(FaultyFamily):
    """Makes shards that scribble."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return ScribblingShard(num_slots, self.faulty)


@pytest.mark.parametrize("name", ["process", "pipe"])
def test_what_a_fork_writes_meanwhile_reaches_no_row(name: str, tmp_path: Path) -> None:
    with manage(ScribblingFamily(**TOY, where="nowhere", folder=str(tmp_path)), name) as manager:
        until = time.monotonic() + DEADLINE_S
        assert played(manager) == fault_free()
        while time.monotonic() < until:
            assert np.isfinite(manager.rows.reward).all()
            manager.abandon()
            assert played(manager) != "" and happened(tmp_path) == 1
        assert manager.faults.restarts == 0

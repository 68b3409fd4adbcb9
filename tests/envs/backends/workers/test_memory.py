"""Shared memory: no descriptor stays open, the size is fixed, and a process can let go of it alone."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends.base import StartMethod
from envs.backends.workers.memory import SharedMemory, reserve
from envs.base import Shard
from tests.faults import TOY, fault_free, faulty, happened, manage, played
from tests.toys_faulty import FaultyFamily, FaultyShard, whole

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")


def open_here() -> list[str]:
    """The descriptors of rows that this process has open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [link for link in links if os.path.lexists(link) and "retrial-rows" in os.readlink(link)]


def mapped() -> int:
    """How many mappings of rows this process has."""
    return Path("/proc/self/maps").read_text().count("retrial-rows")


@linux
def test_a_mapping_keeps_no_descriptor_and_ends_with_its_last_array() -> None:
    gc.collect()
    open_before, mapped_before = open_here(), mapped()
    descriptor = reserve(5000)
    memory = SharedMemory(descriptor, 5000)
    os.close(descriptor)
    array = np.ndarray((600,), np.float64, memory.buffer)
    array[:] = 2.0
    del memory
    gc.collect()
    assert open_here() == open_before and mapped() == mapped_before + 1
    assert array.sum() == 1200.0
    del array
    gc.collect()
    assert mapped() == mapped_before


def test_both_mappings_show_the_same_until_one_is_separated() -> None:
    descriptor = reserve(16)
    ours, theirs = SharedMemory(descriptor, 16), SharedMemory(descriptor, 16)
    os.close(descriptor)
    our_array, their_array = (np.ndarray((2,), np.float64, memory.buffer) for memory in (ours, theirs))
    our_array[:] = [1.0, 2.0]
    assert their_array.tolist() == [1.0, 2.0]
    theirs.separate()
    their_array[0] = 7.0
    our_array[1] = 9.0
    assert our_array.tolist() == [1.0, 9.0] and their_array.tolist() == [7.0, 2.0]


@linux
def test_nobody_can_cut_the_memory_under_those_who_read_it() -> None:
    descriptor = reserve(5000)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def test_what_cannot_be_mapped_is_an_os_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        SharedMemory(9999, 16)


@linux
@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork])
def test_a_stray_write_of_a_worker_finds_no_descriptor_of_the_rows(
    method: StartMethod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with manage(faulty(tmp_path, "write_into_rows"), start_method=method) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 1
    assert "there were 0 descriptors of rows" in caplog.text


class WildShard(FaultyShard):
    """Fills all memory that it shares with the trainer with nonsense before it fails."""

    def _meet(self, where: str, slots: NDArray[np.int64]) -> None:
        try:
            super()._meet(where, slots)
        except ValueError:
            memory: Any = whole(self.rows.reward).base
            np.frombuffer(memory, np.uint8)[:] = 0xFF
            raise


class WildFamily(FaultyFamily):
    """Makes wild shards."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return WildShard(num_slots, self.faulty)


def test_whatever_a_worker_writes_into_the_rows_its_trials_can_be_run_again(tmp_path: Path) -> None:
    family = WildFamily(**TOY, fault="raise", at=3, times=2, folder=str(tmp_path))
    with manage(family, workers=1) as manager:
        assert played(manager) == fault_free()
        assert happened(tmp_path) == 2

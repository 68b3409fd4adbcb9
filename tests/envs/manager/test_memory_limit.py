"""The memory limit: measured now and then, reported by worker, and refused where it can never be kept."""

from __future__ import annotations

import os
from typing import Any

import pytest

from envs.manager.memory_limit import MEMORY_CHECK_S, MemoryLimit
from envs.manager.recovery import WorkerError


class OneProcess:
    """A backend whose only worker is this very process."""

    def processes(self) -> dict[int, tuple[int, ...]]:
        return {os.getpid(): (0, 1)}


def limit_of(limit: int | None, times: list[float]) -> MemoryLimit:
    """A limit whose clock shows these times, one after the other."""
    backend: Any = OneProcess()
    return MemoryLimit(backend, limit, now=iter(times).__next__)


def test_a_worker_beyond_the_limit_is_reported_with_its_slots() -> None:
    (worker,) = limit_of(1, [0.0, 0.0, 0.0]).grown()
    assert worker.slots.tolist() == [0, 1]
    assert worker.sentence.startswith("The worker of slots 0, 1 takes ")
    assert worker.sentence.endswith(" MB, and backend.max_worker_memory=1 is its limit.")


def test_memory_is_measured_now_and_then_only() -> None:
    limit = limit_of(1, [0.0, 0.0, 0.0, 0.5, MEMORY_CHECK_S, MEMORY_CHECK_S])
    assert [len(limit.grown()) for _ in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("limit", [None, 10**9])
def test_without_a_limit_or_below_it_there_is_nothing_to_report(limit: int | None) -> None:
    memory = limit_of(limit, [0.0, 0.0, 0.0])
    assert memory.grown() == []
    memory.check_rebuilt()


def test_a_limit_that_a_new_worker_exceeds_is_refused() -> None:
    with pytest.raises(WorkerError, match="It has only just been built anew, so a larger limit is needed"):
        limit_of(1, [0.0]).check_rebuilt()

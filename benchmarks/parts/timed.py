"""Environments that report when they were stepped, for the profile of a backend; imports no torch."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.base import Rows, Shard, TaskFamily

# The added infos: the clock before and after the call that made the row, and its CPU seconds.
STAMPS = ("begin", "end", "cpu")


class TimedFamily(TaskFamily):
    """A family whose rows also carry `STAMPS` (the clock is one for all processes of a machine)."""

    def __init__(self, inner: TaskFamily) -> None:
        super().__init__(inner.config)
        self._inner = inner
        self.spec = replace(inner.spec, info_names=(*inner.spec.info_names, *STAMPS))

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return self._inner.sample_tasks(rng, n, split)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        shard = self._inner.make_shard(num_slots, threads)
        return TimedAsyncShard(shard) if isinstance(shard, AsyncShard) else TimedShard(shard)


def _own(rows: Rows) -> Rows:
    """The rows without the added infos, as the family knows them."""
    return replace(rows, info=rows.info[:, : -len(STAMPS)])


class TimedShard(Shard):
    """Stamps the rows of every call."""

    def __init__(self, inner: Shard) -> None:
        self._inner = inner

    def bind(self, rows: Rows) -> None:
        super().bind(rows)
        self._inner.bind(_own(rows))

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        begin, cpu = perf_counter(), thread_time()
        self._inner.reset(slots, tasks, seeds)
        self.rows.info[slots, -3:] = begin, perf_counter(), thread_time() - cpu

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        begin, cpu = perf_counter(), thread_time()
        self._inner.step(slots, actions)
        self.rows.info[slots, -3:] = begin, perf_counter(), thread_time() - cpu

    def close(self) -> None:
        self._inner.close()


class TimedAsyncShard(AsyncShard):
    """Stamps the row of every coroutine, whose CPU time cannot be known."""

    def __init__(self, inner: AsyncShard) -> None:
        self._inner = inner

    def bind(self, rows: Rows) -> None:
        super().bind(rows)
        self._inner.bind(_own(rows))

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        await self._stamp(slot, self._inner.reset_slot(slot, task, seed))

    async def step_slot(self, slot: int, action: Any) -> None:
        await self._stamp(slot, self._inner.step_slot(slot, action))

    async def close_slot(self, slot: int) -> None:
        await self._inner.close_slot(slot)

    async def _stamp(self, slot: int, call: Awaitable[None]) -> None:
        begin = perf_counter()
        await call
        self.rows.info[slot, -3:] = begin, perf_counter(), 0.0

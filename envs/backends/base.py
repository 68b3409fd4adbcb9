"""The contract of a backend: post commands to slots, wait for their rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Layout, Rows, Shard, SlotError, TaskFamily
from utils.options import option

Factory = Callable[[], TaskFamily]


class StartMethod(Enum):
    """How worker processes are started; auto is forkserver where the system has it, else spawn."""

    auto = "auto"
    forkserver = "forkserver"
    spawn = "spawn"
    fork = "fork"


@dataclass
class BackendConfig:
    """How the slots are stepped; nothing here changes the data."""

    name: str = option("auto", "serial, process, or auto: process with two or more workers, else serial")
    threads: int | None = option(None, "threads of a serial backend, for families that can use them; null takes one per core", low=1)
    start_method: StartMethod = option(StartMethod.auto, "how worker processes start: auto, forkserver, spawn or fork")
    construct_timeout_s: float = option(120.0, "how long the workers may take to build their environments", above=0)
    call_timeout_s: float = option(60.0, "how long one step or reset may take", above=0)
    close_timeout_s: float = option(5.0, "how long a worker may take to stop before it is killed", above=0)


@dataclass(frozen=True)
class Block:
    """Consecutive slots start..stop that one factory makes."""

    factory: Factory
    start: int
    stop: int


@dataclass
class Commands:
    """What each slot does next: arrays over all N slots, read where a slot is posted."""

    reset: NDArray[np.bool_]
    action: NDArray[Any]
    task: NDArray[np.float64]
    seed: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: Rows) -> Commands:
        """Commands for the slots of `rows`."""
        num_slots = len(rows.reward)
        return cls(np.zeros(num_slots, np.bool_), np.zeros_like(rows.prev_action), np.zeros_like(rows.task), np.zeros(num_slots, np.uint64))


@dataclass(frozen=True)
class Fault:
    """What went wrong in some slots: the sentence says it, the traceback is the original one as text."""

    slots: tuple[int, ...]
    sentence: str
    traceback: str = ""


class BackendError(RuntimeError):
    """The backend could not be started; its text is one sentence for the user, with the worker's traceback where there is one."""


class Backend(ABC):
    """Places the shards of its blocks and moves their rows; knows nothing of learning."""

    rows: Rows
    """Live rows of all N slots; those of posted slots are undefined until they are ready."""

    @abstractmethod
    def __init__(self, blocks: Sequence[Block], layout: Layout, *, num_workers: int, config: BackendConfig) -> None: ...

    @property
    @abstractmethod
    def description(self) -> str:
        """A few words for the first line of a run: what steps the slots, and how."""

    @abstractmethod
    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Start the commands of these slots (sorted, none of them pending); returns at once."""

    @abstractmethod
    def wait(self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None) -> tuple[NDArray[np.int64], list[Fault]]:
        """Wait for posted slots: (those whose rows are there, what went wrong). All of them, or at least `min_ready`."""

    @abstractmethod
    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        """An RGB picture of one slot that is not pending."""

    def pids(self) -> list[int]:
        """The worker processes, for memory displays."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Stop everything; may be called twice, returns in bounded time, never raises for a dead worker."""


def split_evenly(total: int, parts: int) -> list[tuple[int, int]]:
    """Ranges (start, stop) that cut `total` into `parts`, uneven by one at most."""
    edges = [total * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def cut_blocks(blocks: Sequence[Block], start: int, stop: int) -> list[Block]:
    """The blocks of slots start..stop."""
    cut = [Block(block.factory, max(block.start, start), min(block.stop, stop)) for block in blocks]
    return [block for block in cut if block.start < block.stop]


class ShardHost:
    """The shards of some blocks, stepped one after the other: what a serial backend is, and what runs in every worker."""

    def __init__(self, blocks: Sequence[Block], layout: Layout, rows: Rows, threads: int = 1) -> None:
        self._places = [(block.start, block.stop, block.factory().make_shard(block.stop - block.start, threads)) for block in blocks]
        self._rows = rows
        for start, stop, shard in self._places:
            shard.bind(layout.part(rows, start, stop))

    def run(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Reset or step these slots. A `SlotError` that leaves here counts slots as the manager does."""
        resets = commands.reset[slots]
        if resets.any():
            fresh = slots[resets]
            self.reset(fresh, commands.task[fresh], commands.seed[fresh])
        if not resets.all():
            stepped = slots[~resets]
            self.step(stepped, commands.action[stepped])

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start an episode of `tasks[i]` with `seeds[i]` in `slots[i]`."""
        rows = self._rows
        rows.reward[slots] = 0.0
        rows.terminated[slots] = False
        rows.truncated[slots] = False
        for start, shard, own in self._own(slots):
            try:
                shard.reset(slots[own] - start, tasks[own], seeds[own])
            except SlotError as error:
                error.slot += start  # a shard counts its own slots
                raise

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step those slots only, with `actions[i]` in `slots[i]`."""
        for start, shard, own in self._own(slots):
            try:
                shard.step(slots[own] - start, actions[own])
            except SlotError as error:
                error.slot += start
                raise

    def _own(self, slots: NDArray[np.int64]) -> Iterator[tuple[int, Shard, slice]]:
        """(first slot, shard, its part of `slots`) of every shard that has some of the sorted `slots`."""
        if len(self._places) == 1:
            yield self._places[0][0], self._places[0][2], slice(None)
            return
        for start, stop, shard in self._places:
            first, last = np.searchsorted(slots, (start, stop)).tolist()
            if first < last:
                yield start, shard, slice(first, last)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """A picture of one slot."""
        start, _, shard = next(place for place in self._places if place[0] <= slot < place[1])
        return shard.render(slot - start)

    def close(self) -> None:
        """Close every shard."""
        for _, _, shard in self._places:
            shard.close()

"""The contract of a backend: post commands to slots, wait for their rows."""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.base import Rows, Shard, SlotError, TaskFamily
from envs.layout import Layout
from utils.options import option

_log = logging.getLogger(__name__)

Factory = Callable[[], TaskFamily]


class StartMethod(Enum):
    """How worker processes are started; auto is forkserver where the system has it, else spawn."""

    auto = "auto"
    forkserver = "forkserver"
    spawn = "spawn"
    fork = "fork"


# What happens when an environment raises, hangs or dies. `restart` builds it anew and re-runs its trial from
# its key, so that the data is that of a run without the fault; `drop` builds it anew and gives the trial up;
# `raise` stops with one named error. (A class cannot spell `raise`.)
OnFault = Enum("OnFault", {"restart": "restart", "drop": "drop", "raise": "raise"})


@dataclass
class BackendConfig:
    """How the slots are stepped; nothing here changes the data (but for `min_ready` and `on_fault=drop`,
    which deterministic=true refuses).
    """

    name: str = option(
        "auto", "serial, process, pipe, thread, asyncio, or auto: what a short measurement finds fastest"
    )
    threads: int | None = option(
        None,
        "threads inside a shard (serial, thread), for families that can use them; null: one per core",
        low=1,
    )
    min_ready: int | None = option(
        None,
        "go on as soon as so many slots are ready, first come first served (not on serial); null waits for all",
        low=1,
    )
    on_fault: OnFault = option(
        OnFault.restart,
        "restart: build anew and re-run the trial from its key; drop: give the trial up; raise: stop",
    )
    fault_budget: int = option(
        5, "restarts that a slot may need within ten minutes before the run stops", low=0
    )
    max_worker_memory: int | None = option(
        None,
        "megabytes that a worker process may take before it is built anew, for environments that leak (process, pipe)",
        low=1,
    )
    start_method: StartMethod = option(
        StartMethod.auto, "how worker processes start: auto, forkserver, spawn or fork"
    )
    construct_timeout_s: float = option(
        120.0, "how long the workers may take to build their environments", above=0
    )
    call_timeout_s: float = option(
        60.0,
        "how long a step or reset of all the slots of one worker may take; serial, in this process, cannot keep a deadline",
        above=0,
    )
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
        return cls(
            np.zeros(num_slots, np.bool_),
            np.zeros_like(rows.prev_action),
            np.zeros_like(rows.task),
            np.zeros(num_slots, np.uint64),
        )

    def part(self, start: int, stop: int) -> Commands:
        """Views of slots start..stop."""
        return Commands(
            self.reset[start:stop], self.action[start:stop], self.task[start:stop], self.seed[start:stop]
        )


@dataclass(frozen=True)
class Segment:
    """Consecutive slots start..stop that one worker steps together: its part of one group."""

    worker: int
    group: int
    blocks: tuple[Block, ...]

    @property
    def start(self) -> int:
        """Its first slot."""
        return self.blocks[0].start

    @property
    def stop(self) -> int:
        """One past its last slot."""
        return self.blocks[-1].stop


@dataclass(frozen=True)
class Fault:
    """What went wrong in some slots: the sentence says it, the traceback is the original one as text.

    `lost` are all slots whose environments are gone with it (at least `slots`): they must be restored before
    they are posted again.
    """

    slots: tuple[int, ...]
    sentence: str
    traceback: str = ""
    lost: tuple[int, ...] = ()


FLOAT32_MAX = float(np.finfo(np.float32).max)
FEW = 4096
"""Numbers of which BLAS takes the sum of squares in this thread, waking no other."""
MESSAGE_LIMIT, TRACE_LIMIT = 8_000, 24_000
"""characters of an error's message and of its traceback that are kept"""


def shorten(text: str, room: int) -> str:
    """The text, without its middle if it is longer than so many characters."""
    return (
        text
        if len(text) <= room
        else f"{text[: room // 2]}\n... {len(text) - room} characters left out ...\n{text[-(room // 2) :]}"
    )


def raised(error: BaseException, slots: tuple[int, ...], lost: tuple[int, ...], first: int = 0) -> Fault:
    """The fault of an environment that raised this in our own process, while it ran these slots; a
    `SlotError` counts from `first`.
    """
    report = traceback.TracebackException.from_exception(error)  # also of errors whose own text cannot be had
    culprit = error.slot + first if isinstance(error, SlotError) else -1
    culprits = (culprit,) if culprit in slots else slots
    return Fault(
        culprits,
        f"raised {type(error).__name__}: {shorten(str(report), MESSAGE_LIMIT)}",
        shorten("".join(report.format()), TRACE_LIMIT),
        lost,
    )


class BackendError(RuntimeError):
    """The backend could not be started; its text is one sentence for the user, with the worker's traceback
    where there is one.
    """


def not_built(faults: Sequence[Fault]) -> BackendError:
    """What went wrong in which slots while they were built, each thing once, with its first traceback."""
    report: list[str] = []
    for sentence in dict.fromkeys(fault.sentence for fault in faults):
        alike = [fault for fault in faults if fault.sentence == sentence]
        slots = sorted({slot for fault in alike for slot in fault.slots})
        where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {slots[0]} to {slots[-1]}"
        report.append(f"The environments of {where} could not be built: {sentence}")
        report += [alike[0].traceback.rstrip()] if alike[0].traceback else []
    return BackendError("\n".join(report))


def not_drawn(slot: int, fault: Fault, *, lost: bool) -> RuntimeError:
    """Why there is no picture; `lost`: the environment is gone."""
    then = " (It is built anew at the next step or reset, unless on_fault=raise.)" if lost else ""
    return RuntimeError(
        f"The picture of slot {slot} could not be drawn: the environment {fault.sentence}{then}\n{fault.traceback}".rstrip()
    )


class Backend(ABC):
    """Places the shards of its blocks and moves their rows; knows nothing of learning."""

    can_lag: ClassVar[bool] = False
    """Whether `min_ready` means anything: some slots can be ready before others."""
    has_processes: ClassVar[bool] = False
    """Whether `max_worker_memory` means anything."""
    rows: Rows
    """Live rows of all N slots; those of posted slots are undefined until they are ready."""
    closing = False
    """Set by whoever is about to close it: a wait that another thread is in should end now, with an error."""

    @abstractmethod
    def __init__(
        self,
        blocks: Sequence[Block],
        layout: Layout,
        *,
        num_workers: int,
        num_groups: int = 1,
        config: BackendConfig,
    ) -> None: ...

    @property
    @abstractmethod
    def description(self) -> str:
        """A few words for the first line of a run: what steps the slots, and how."""

    @abstractmethod
    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Start the commands of these slots (sorted, none of them pending); returns at once."""

    @abstractmethod
    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        """Wait for posted slots: (those whose rows are there, what went wrong). All of them, or at least
        `min_ready`.

        After a fault that names any of them, none of the slots that it lost is pending, and their rows may
        hold anything.
        """

    @abstractmethod
    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        """Build the environments of these lost slots anew, as they were before their first reset; what went
        wrong with that.

        Every slot that a fault lost together with them is among them. Whatever may still run of the old ones
        is ended or cut off first, so that a late answer is never taken for a new one.
        """

    @abstractmethod
    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        """An RGB picture of one slot that is not pending."""

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The worker processes that are alive, and the slots of each."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Stop everything; may be called twice, returns in bounded time, never raises for a dead worker."""


def split_evenly(total: int, parts: int) -> list[tuple[int, int]]:
    """Ranges (start, stop) that cut `total` into `parts`, uneven by one at most."""
    edges = [total * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def segments_of(blocks: Sequence[Block], num_workers: int, num_groups: int = 1) -> list[Segment]:
    """Who steps which slots, in the order of the slots: the groups cut the slots, and every worker has a part
    of every group.
    """
    found: list[Segment] = []
    for group, (first, last) in enumerate(split_evenly(blocks[-1].stop, num_groups)):
        for worker, (start, stop) in enumerate(split_evenly(last - first, num_workers)):
            if start < stop:
                found.append(Segment(worker, group, tuple(cut_blocks(blocks, first + start, first + stop))))
    return found


def cut_blocks(blocks: Sequence[Block], start: int, stop: int) -> list[Block]:
    """The blocks of slots start..stop."""
    cut = [Block(block.factory, max(block.start, start), min(block.stop, stop)) for block in blocks]
    return [block for block in cut if block.start < block.stop]


def _surely_finite(values: NDArray[Any]) -> bool:
    """Whether the sum of their squares is below the limit, so that all of them are: found in a quarter of the
    time that a look at each takes.
    """
    return values.size <= FEW and values.itemsize >= 4 and bool(np.vdot(values, values) <= FLOAT32_MAX)


class ShardHost:
    """The shards of some blocks, stepped one after the other: what a serial backend is, and what runs in
    every worker.

    No reward and no observation that is not finite leaves it: that is a `SlotError`, like any other failure
    of an environment.
    """

    def __init__(
        self, blocks: Sequence[Block], layout: Layout, rows: Rows, threads: int = 1, *, first: int = 0
    ) -> None:
        """`first`: what its slot 0 is called elsewhere."""
        self._first = first
        self._places = [
            (block.start, block.stop, block.factory().make_shard(block.stop - block.start, threads))
            for block in blocks
        ]
        self._rows = rows
        self._start, self._stop = blocks[0].start, blocks[-1].stop
        own = layout.part(rows, self._start, self._stop)
        obs = list(own.obs.values()) if isinstance(own.obs, dict) else [own.obs]
        self._checked = [own.reward, *(part for part in obs if part.dtype.kind == "f")]
        for start, stop, shard in self._places:
            shard.bind(layout.part(rows, start, stop))

    @property
    def shards(self) -> list[Shard]:
        """What it steps."""
        return [shard for _, _, shard in self._places]

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
        self.check(slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step those slots only, with `actions[i]` in `slots[i]`."""
        for start, shard, own in self._own(slots):
            try:
                shard.step(slots[own] - start, actions[own])
            except SlotError as error:
                error.slot += start
                raise
        self.check(slots)

    def check(self, slots: NDArray[np.int64]) -> None:
        """Refuse what is no number in float32, which agents read; one look at all slots of an array is
        cheaper than picking the stepped ones.
        """
        for values in self._checked:
            if _surely_finite(values) or (np.abs(values) <= FLOAT32_MAX).all():  # NaN is not
                continue
            mine = values[slots - self._start].reshape(len(slots), -1)
            bad = slots[~(np.abs(mine) <= FLOAT32_MAX).all(1)]
            if len(bad):
                what = "reward" if values.ndim == 1 else "observation"
                raise SlotError(
                    int(bad[0]),
                    f"the {what} is not finite (in float32): {values[bad[0] - self._start].tolist()}",
                )

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

    def close(
        self, catching: type[BaseException] | tuple[type[BaseException], ...] = (Exception, SystemExit)
    ) -> None:
        """Close every shard; one that fails to is reported and does not keep the others open.

        Where no Ctrl-C of the user can arrive, everything is to be caught.
        """
        for start, stop, shard in self._places:
            try:
                shard.close()
            except catching:
                _log.warning(
                    "The environments of slots %d to %d failed to close.",
                    self._first + start,
                    self._first + stop - 1,
                    exc_info=True,
                )
        self._places.clear()

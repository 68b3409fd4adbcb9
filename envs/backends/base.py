"""The contract of a backend: post commands to slots, wait for their rows."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.base import Rows, SlotError, TaskFamily
from envs.layout import Layout
from utils.options import option
from utils.text import harmless

Factory = Callable[[], TaskFamily]
# What ends a run where environments are stepped in its own thread. All else that is raised there comes from
# an environment and is contained, whatever its class is: a panic of Rust, say, is no `Exception`.
RUN_ENDINGS = (KeyboardInterrupt,)


class StartMethod(Enum):
    """How worker processes are started; auto is forkserver where the system has it, else spawn."""

    auto = "auto"
    forkserver = "forkserver"
    spawn = "spawn"
    fork = "fork"


# What becomes of a fault: build anew and re-run the trial, give the trial up, or stop with one named error.
#
# (A class statement cannot spell the name `raise`.)
OnFault = Enum("OnFault", {"restart": "restart", "drop": "drop", "raise": "raise"})


class OutOfBounds(Enum):
    """What becomes of a finite observation outside of the space that its environment declares."""

    note = "note"
    refuse = "refuse"
    ignore = "ignore"


@dataclass
class BackendConfig:
    """How the slots are stepped: nothing here changes the data, but for `min_ready` and `on_fault=drop`.

    deterministic=true refuses those two. `name=auto` measures a few environments for a moment (see auto.py).
    `on_fault=restart` re-runs the trial from its key, so that the data is that of a run without the fault.
    `threads` is for families whose shards can use several. `max_worker_memory`, `start_method` and
    `keep_environment` are for the backends with worker processes. A time-out cannot be kept by serial, which
    steps in the calling thread.
    """

    name: str = option("auto", "serial, process, pipe, thread, asyncio, or auto: what is measured as fastest")
    threads: int | None = option(
        None, "threads inside a shard, for families that can use them; null: one per core", low=1
    )
    min_ready: int | None = option(
        None, "go on as soon as so many slots are ready (not on serial); null waits for all", low=1
    )
    on_fault: OnFault = option(
        OnFault.restart, "restart: build anew and re-run the trial; drop: give the trial up; raise: stop"
    )
    fault_budget: int = option(
        5, "restarts that a slot may need within ten minutes before the run stops", low=0
    )
    out_of_bounds: OutOfBounds = option(
        OutOfBounds.note, "observations outside of the declared Box: note once, refuse, or ignore"
    )
    max_worker_memory: int | None = option(
        None, "megabytes that a worker process may take before it is built anew", low=1
    )
    start_method: StartMethod = option(
        StartMethod.auto, "how worker processes start: auto, forkserver, spawn or fork"
    )
    keep_environment: list[str] = option(
        [], "environment variables that workers see too, by name; most are withheld from them"
    )
    construct_timeout_s: float = option(
        120.0, "seconds that the workers may take to build their environments", above=0
    )
    call_timeout_s: float = option(
        60.0, "seconds that a step or reset of all the slots of one worker may take", above=0
    )
    close_timeout_s: float = option(
        5.0, "seconds that a worker may take to stop before it is killed", above=0
    )


@dataclass(frozen=True)
class Block:
    """Consecutive slots start..stop that one factory makes."""

    factory: Factory
    start: int
    stop: int


@dataclass
class Commands:
    """What each slot does next: arrays over all N slots, read where a slot is posted."""

    # Whether the slot starts an episode (with `task` and `seed`) or is stepped (with `action`).
    reset: NDArray[np.bool_]
    action: NDArray[Any]
    task: NDArray[np.float64]
    seed: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: Rows) -> Commands:
        """Allocate commands for the slots of `rows`."""
        num_slots = len(rows.reward)
        return cls(
            np.zeros(num_slots, np.bool_),
            np.zeros_like(rows.prev_action),
            np.zeros_like(rows.task),
            np.zeros(num_slots, np.uint64),
        )

    def part(self, start: int, stop: int) -> Commands:
        """Return views of slots start..stop."""
        return Commands(
            self.reset[start:stop], self.action[start:stop], self.task[start:stop], self.seed[start:stop]
        )


@dataclass(frozen=True)
class Segment:
    """Consecutive slots start..stop that one worker steps together: its part of one group."""

    worker: int
    group: int
    blocks: tuple[Block, ...]
    start: int
    stop: int

    @property
    def slots(self) -> tuple[int, ...]:
        """All slots of the segment."""
        return tuple(range(self.start, self.stop))


@dataclass(frozen=True)
class Fault:
    """What went wrong in some slots, as text that names no live object.

    All that an environment says of its failure goes through here, and is made harmless to terminals and logs.
    """

    # The slots that caused it, as far as that is known.
    slots: tuple[int, ...]
    # The end of a sentence that begins with the slots, such as "raised ValueError: broken".
    sentence: str
    traceback: str = ""
    # All slots whose environments are gone: they must be restored before they are posted again.
    lost: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", harmless(self.sentence))
        object.__setattr__(self, "traceback", harmless(self.traceback))


class BackendError(RuntimeError):
    """The backend could not be started: one sentence for the user, and the traceback if there is one."""


class Backend(ABC):
    """Places the shards of its blocks and moves their rows; knows nothing of learning.

    The calls of a run: post, wait, post, wait, ..., and after a fault restore, post and wait for the slots
    that it lost. The manager re-runs their trials; a backend reports faults and repairs nothing by itself.
    """

    # Whether `min_ready` means anything: some slots can be ready before others.
    can_lag: ClassVar[bool] = False
    # Whether `max_worker_memory` means anything.
    has_processes: ClassVar[bool] = False
    # Live rows of all N slots; those of posted slots are undefined until they are ready.
    rows: Rows
    # Set before another thread closes the backend: a wait that is under way then ends with an error.
    closing = False

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
        """Wait for all of these posted slots, or for `min_ready`: (those whose rows are there, the faults).

        After a fault none of the slots that it lost is pending any more, and their rows may hold anything.
        """

    @abstractmethod
    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        """Build lost environments anew, as they were before their first reset; return what went wrong.

        `slots` holds every slot that a fault lost together. Whatever still runs of the old environments is
        ended or cut off first, so that a late answer is never taken for a new one.
        """

    @abstractmethod
    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        """Draw an RGB picture of one slot that is not pending."""

    def processes(self) -> dict[int, tuple[int, ...]]:
        """Return the worker processes that are alive, and the slots of each."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Stop everything; may be called twice, returns in bounded time, never raises for a dead worker."""


# -- which worker steps which slots --------------------------------------------------------------------------


def split_evenly(total: int, parts: int) -> list[tuple[int, int]]:
    """Return the ranges (start, stop) that cut `total` into `parts`, uneven by one at most."""
    # Integer arithmetic: the same cut on every machine, in the trainer and in a worker.
    edges = [total * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def segments_of(blocks: Sequence[Block], num_workers: int, num_groups: int = 1) -> list[Segment]:
    """Return the segments in the order of their slots: every worker has a part of every group."""
    # The groups cut the slots, and inside a group the workers do: a round of one group uses every worker.
    segments: list[Segment] = []
    for group, (first, last) in enumerate(split_evenly(blocks[-1].stop, num_groups)):
        for worker, (start, stop) in enumerate(split_evenly(last - first, num_workers)):
            if start < stop:
                own = first + start, first + stop
                segments.append(Segment(worker, group, tuple(cut_blocks(blocks, *own)), *own))
    return segments


def cut_blocks(blocks: Sequence[Block], start: int, stop: int) -> list[Block]:
    """Return the blocks of slots start..stop."""
    cut = [Block(block.factory, max(block.start, start), min(block.stop, stop)) for block in blocks]
    return [block for block in cut if block.start < block.stop]


# -- faults in words -----------------------------------------------------------------------------------------

# The most characters of an error's message that a fault holds.
MESSAGE_LIMIT = 4_000
# The most characters of a traceback that a fault holds.
TRACE_LIMIT = 12_000
# The most characters of an error's text, which may tell of several faults.
REPORT_LIMIT = 18_000


def shorten(text: str, length: int) -> str:
    """Return the text, without its middle if it is longer than `length` characters."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]}\n... {len(text) - length} characters left out ...\n{text[-half:]}"


def fault_of_error(
    error: BaseException, slots: tuple[int, ...], lost: tuple[int, ...], first_slot: int = 0
) -> Fault:
    """Return the fault of an environment that raised in our own process while it ran these slots.

    A `SlotError` counts slots from `first_slot`. The fault does not store the error, whose frames hold the
    environment.
    """
    # A slot that was not asked for cannot be the culprit, whatever the error says.
    culprit = error.slot + first_slot if isinstance(error, SlotError) else None
    culprits = (culprit,) if culprit in slots else slots
    # A TracebackException gives a text even for errors whose own __str__ fails.
    message = str(traceback.TracebackException.from_exception(error))
    sentence = f"raised {type(error).__name__}: {shorten(message, MESSAGE_LIMIT)}"
    return Fault(culprits, sentence, report_of(error), lost)


def root_of(error: BaseException) -> BaseException:
    """Return the error that an environment raised, where a `SlotError` only says in which slot that was."""
    root = error.__cause__ if isinstance(error, SlotError) else None
    return root or error


def report_of(error: BaseException) -> str:
    """Return the traceback of an environment's error as text, for a fault or for the log."""
    lines = traceback.TracebackException.from_exception(root_of(error)).format()
    return harmless(shorten("".join(lines), TRACE_LIMIT))


def construction_error(faults: Sequence[Fault], withheld: Sequence[str] = ()) -> BackendError:
    """Return the error that names each failure to build once, with its slots and its first traceback.

    `withheld` are the environment variables that the workers could not see.
    """
    # Environments often fail alike, so the faults are grouped by what they say.
    lines: list[str] = []
    for sentence in dict.fromkeys(fault.sentence for fault in faults):
        alike = [fault for fault in faults if fault.sentence == sentence]
        slots = sorted({slot for fault in alike for slot in fault.slots})
        where = f"slot {slots[0]}" if len(slots) == 1 else f"slots {slots[0]} to {slots[-1]}"
        lines.append(f"The environments of {where} could not be built: {sentence}")
        if alike[0].traceback:
            lines.append(alike[0].traceback.rstrip())
    if withheld:
        lines.append(withheld_sentence(withheld))
    return BackendError("\n".join(lines))


def withheld_sentence(names: Sequence[str], most: int | None = None) -> str:
    """Return the sentence that names variables which no worker sees, or the first `most` of them."""
    named = ", ".join(names[:most])
    more = "" if most is None or len(names) <= most else f" and {len(names) - most} more"
    return f"Workers do not see {named}{more} (backend.keep_environment=[NAME] passes a variable on)."


def render_error(slot: int, fault: Fault, *, lost: bool) -> RuntimeError:
    """Return the error that says why there is no picture; `lost` if the environment is gone."""
    sentence = f"The picture of slot {slot} could not be drawn: the environment {fault.sentence}"
    if lost:
        sentence += " (It is built anew at the next step or reset, unless on_fault=raise.)"
    return RuntimeError(f"{sentence}\n{fault.traceback}".rstrip())

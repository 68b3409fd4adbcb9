"""What the backends that stay in this process share: private rooms for environments, letters from them, and
one way to wait for letters.

An environment that hangs cannot be killed here, only left behind. So it lives in a *room*, with rows and
commands that nobody else touches on its *desk*: copied when a command is posted and when its answer has come.
A room that is lost is abandoned as a whole, and a new one takes its place: whatever still runs in the old one
writes where nobody reads, and its letters are thrown away unread.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    TRACE_LIMIT,
    Backend,
    BackendConfig,
    Block,
    Commands,
    Fault,
    ShardHost,
    not_built,
    not_drawn,
    raised,
    shorten,
)
from envs.base import Rows, Slots
from envs.layout import Layout

_log = logging.getLogger(__name__)

NOBODY_WAITS = 2**62
EVERYTHING = slice(None)


class LetterKind(Enum):
    """What is asked of a room."""

    BUILD = 0
    RUN = 1
    RENDER = 2


class PrivateRows:
    """Private rows and commands of consecutive slots, and how they are copied from and to those that
    everybody sees.

    All first rooms share one, since copying for many slots at once costs hardly more than for one. A room
    that takes a lost one's place has a desk of its own: what still runs in the old one may go on writing
    where it did.
    """

    def __init__(self, layout: Layout, public: Rows, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.layout = Layout(layout.spec)  # no task and no flag: the manager writes them into the public rows
        self.rows = self.layout.allocate(stop - start)
        self.commands = Commands.empty(self.rows)
        into, out = layout.part(public, start, stop), self.rows
        self._copies = [
            *_pairs(into.obs, out.obs),
            *((getattr(into, name), getattr(out, name)) for name in _WRITTEN),
        ]

    def load(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Take the commands of these slots over; the originals may change at once."""
        own, (mine, theirs) = self.commands, self._where(slots)
        own.reset[mine] = resets = commands.reset[theirs]
        own.action[mine] = commands.action[theirs]
        if resets.any():
            own.task[mine] = commands.task[theirs]
            own.seed[mine] = commands.seed[theirs]

    def deliver(self, slots: NDArray[np.int64]) -> None:
        """Copy the rows of these slots to where everybody reads them."""
        mine, _ = self._where(slots)
        for public, private in self._copies:
            public[mine] = private[mine]

    def _where(self, slots: NDArray[np.int64]) -> tuple[Slots, Slots]:
        """How to index the arrays of this desk, and those of all slots: views where all its slots are meant,
        which is much faster.
        """
        return (
            (EVERYTHING, slice(self.start, self.stop))
            if len(slots) == self.stop - self.start
            else (slots - self.start, slots)
        )


class LocalHost:
    """The environments of consecutive slots start..stop, from when they are built until they are closed or
    lost.

    The trainer's thread loads commands and delivers rows while nothing is asked of those slots; all else
    belongs to the thread that works here.
    """

    def __init__(self, number: int, blocks: Sequence[Block], desk: PrivateRows, threads: int) -> None:
        self.number, self.blocks, self.desk = number, blocks, desk
        self.start, self.stop = blocks[0].start, blocks[-1].stop
        self.abandoned = False
        self._threads = threads
        own = self.start - desk.start, self.stop - desk.start
        self.rows, self.commands = desk.rows.part(*own), desk.commands.part(*own)
        self.host: ShardHost | None = None

    @property
    def slots(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.start, self.stop))

    # -- on the thread that works here -----------------------------------------------------------------------

    def build(self) -> None:
        """Make the environments."""
        blocks = [
            Block(block.factory, block.start - self.start, block.stop - self.start) for block in self.blocks
        ]
        self.host = ShardHost(blocks, self.desk.layout, self.rows, self._threads, first=self.start)

    def run(self, slots: NDArray[np.int64]) -> None:
        """Do what the commands of these slots say."""
        assert self.host is not None
        self.host.run(slots - self.start, self.commands)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """A picture that nobody draws over."""
        assert self.host is not None
        return np.array(self.host.render(slot - self.start), np.uint8)

    def close(self) -> None:
        """Close the environments, if there are any."""
        host, self.host = self.host, None
        if host is not None:
            host.close(BaseException)  # on a thread of ours, where it would end in a printed traceback

    def fault(self, error: BaseException, slots: NDArray[np.int64]) -> Fault:
        """An error of these slots in words; the error itself is not kept, since its frames hold the
        environment.
        """
        return raised(error, tuple(slots.tolist()), self.slots, self.start)


Order = tuple[LocalHost, NDArray[np.int64]]
"""A room, and the slots that are to do something there."""


def _by_desk(orders: Iterable[Order]) -> Iterator[tuple[PrivateRows, NDArray[np.int64]]]:
    """Each desk with all of its slots that occur in the orders."""
    found: dict[int, tuple[PrivateRows, list[NDArray[np.int64]]]] = {}
    for room, slots in orders:
        found.setdefault(id(room.desk), (room.desk, []))[1].append(slots)
    for desk, parts in found.values():
        yield desk, parts[0] if len(parts) == 1 else np.concatenate(parts)


_WRITTEN = ("reward", "terminated", "truncated", "info")
"""What a shard writes, besides obs."""


def _pairs(public: Any, private: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if isinstance(public, dict):
        yield from ((public[key], private[key]) for key in public)
    else:
        yield public, private


class Letter(NamedTuple):
    """What a room answers: which slots, to which post, and the fault or the picture if there is one."""

    room: LocalHost
    slots: NDArray[np.int64]
    sequence: int
    kind: LetterKind
    fault: Fault | None = None
    picture: NDArray[np.uint8] | None = None


class Mailbox:
    """Letters from working threads to the one that waits, which is woken once for as many letters as it
    needs.

    The GIL orders the two sides: a letter is put before `_wanted` is read, and `_wanted` is written before
    the letters are counted, so one of the two sees the other. Nearly all of a hand-over is the waking (40 us,
    measured alike for locks and queues), hence one per wait.
    """

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._wanted = NOBODY_WAITS

    def put(self, letter: Letter) -> None:
        """Called by any thread."""
        self._letters.append(letter)
        if len(self._letters) >= self._wanted:
            self._bell.put(None)

    def take(self, count: int, deadline: float) -> list[Letter]:
        """All letters, as soon as there are `count`, or at the deadline."""
        letters = self._letters
        self._wanted = count
        while len(letters) < count:
            try:
                self._bell.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
            except Empty:
                break
        self._wanted = NOBODY_WAITS
        return [letters.popleft() for _ in range(len(letters))]


class Executor(Protocol):
    """A thread that works in rooms."""

    thread: threading.Thread

    def hang_up(self) -> None:
        """Let it finish what it does, close its rooms and end; returns at once."""
        ...


class LocalBackend(Backend):
    """Posts to rooms and waits for their letters; a subclass has the threads that work there.

    A slot is settled when it has its answer, or is lost. A post is late when nobody has answered it `timeout`
    after the first wait for it.
    """

    can_lag: ClassVar[bool] = True

    def __init__(
        self, divided: Sequence[Sequence[Block]], layout: Layout, threads: int, config: BackendConfig
    ) -> None:
        self._layout, self._threads, self._config = layout, threads, config
        num_slots = divided[-1][-1].stop
        self.rows = layout.allocate(num_slots)
        self.dropped = 0
        """Letters that came too late, from rooms that had been abandoned."""
        self._mail = Mailbox()
        desk = PrivateRows(layout, self.rows, 0, num_slots)
        self._rooms = [LocalHost(number, blocks, desk, threads) for number, blocks in enumerate(divided)]
        self._edges = np.array([room.start for room in self._rooms] + [num_slots])
        self._room_of = np.repeat(np.arange(len(self._rooms)), np.diff(self._edges))
        self._most = int(np.diff(self._edges).max())
        self._faults: list[Fault | None] = [None] * len(self._rooms)
        self._lost = np.zeros(num_slots, np.bool_)
        self._sequence = 0
        self._asked = np.zeros(num_slots, np.int64)
        self._answered = np.zeros(num_slots, np.int64)
        self._due = np.full(num_slots, np.inf)
        self._picture: NDArray[np.uint8] | Fault | None = None
        self._executors: list[Any] = []
        self._finalizer = weakref.finalize(
            self, _shut_down, self._executors, self._rooms, config.close_timeout_s
        )

    def _construct(self) -> None:
        """Build everything; to be called when the threads are there."""
        try:
            self._ask(LetterKind.BUILD, [(room, np.arange(room.start, room.stop)) for room in self._rooms])
            _, faults = self._settle(np.arange(len(self._asked)), self._config.construct_timeout_s)
            if faults:
                raise not_built(faults)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _hand_over(self, kind: LetterKind, orders: Sequence[Order], sequence: int) -> None:
        """Give the orders to those who work in the rooms; returns at once."""

    @abstractmethod
    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """These slots gave no answer in time: `_lose` their rooms, and all that are stuck with them, and
        replace a stuck thread.
        """

    # -- the contract ----------------------------------------------------------------------------------------

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        orders: list[Order] = [
            order for order in self._split(slots) if not order[0].abandoned
        ]  # of those that are, the next wait tells
        for desk, own in _by_desk(orders):
            desk.load(own, commands)
        self._ask(LetterKind.RUN, orders)

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        return self._settle(slots, timeout, min_ready)

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        self._check_open()
        orders: list[Order] = []
        for number in np.unique(self._room_of[slots]).tolist():
            old = self._rooms[number]
            old.abandoned = True
            desk = PrivateRows(self._layout, self.rows, old.start, old.stop)
            room = self._rooms[number] = LocalHost(number, old.blocks, desk, self._threads)
            self._faults[number] = None
            self._lost[room.start : room.stop] = False
            orders.append((room, np.arange(room.start, room.stop)))
        self._ask(LetterKind.BUILD, orders)
        return self._settle(np.concatenate([own for _, own in orders]), timeout)[1] if orders else []

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        self._check_open()
        one = np.array([slot])
        room = self._rooms[int(self._room_of[slot])]
        if not room.abandoned:
            self._ask(LetterKind.RENDER, [(room, one)])
        _, faults = self._settle(one, timeout)
        picture, self._picture = faults[0] if faults else self._picture, None
        if isinstance(picture, Fault):
            raise not_drawn(slot, picture, lost=bool(faults))
        assert picture is not None
        return picture

    def close(self) -> None:
        self._finalizer()

    # -- waiting ---------------------------------------------------------------------------------------------

    def _settle(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        """Wait until all of these slots, or `min_ready`, are settled: (those that have their answer, the
        faults of those that are lost).
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        spare = 0 if min_ready is None else max(0, len(slots) - min_ready)
        self._read(self._mail.take(0, deadline))
        while True:
            waiting = slots[(self._answered[slots] < self._asked[slots]) & ~self._lost[slots]]
            missing = len(waiting) - spare
            if missing <= 0:
                break
            self._due[waiting] = np.minimum(self._due[waiting], deadline)
            due = float(self._due[waiting].min())
            # A letter settles no more slots than the largest room has, so fewer letters cannot be enough.
            letters = self._mail.take(-(-missing // self._most), due)
            self._read(letters)
            if not letters and time.monotonic() >= due:
                self._check_open()
                self._cut_off(waiting[self._due[waiting] <= due], timeout)
        lost = self._lost[slots]
        if not lost.any():
            return (np.setdiff1d(slots, waiting) if len(waiting) else slots), []
        numbers = dict.fromkeys(self._room_of[slots[lost]].tolist())
        faults = {
            id(fault): fault for fault in (self._faults[number] for number in numbers) if fault is not None
        }
        return np.setdiff1d(slots[~lost], waiting), list(faults.values())

    def _read(self, letters: Sequence[Letter]) -> None:
        answers: list[Order] = []
        for room, slots, sequence, kind, fault, picture in letters:
            if room.abandoned:
                self.dropped += 1
                continue
            if kind is LetterKind.RENDER:
                self._picture = fault or picture
            elif fault is not None:
                self._lose([room], fault)
                continue
            elif kind is LetterKind.RUN:
                answers.append((room, slots))
            self._answered[slots] = sequence
            self._due[slots] = np.inf
        for desk, slots in _by_desk(answers):
            desk.deliver(slots)

    def _lose(self, rooms: Sequence[LocalHost], fault: Fault) -> None:
        """Nothing that comes from these rooms counts any more."""
        for room in rooms:
            room.abandoned = True
            self._faults[room.number] = fault
            self._lost[room.start : room.stop] = True
            self._due[room.start : room.stop] = np.inf

    def _ask(self, kind: LetterKind, orders: Sequence[Order]) -> None:
        self._sequence += 1
        for _, slots in orders:
            self._asked[slots] = self._sequence
        self._hand_over(kind, orders, self._sequence)

    def _split(self, slots: NDArray[np.int64]) -> Iterator[tuple[LocalHost, NDArray[np.int64]]]:
        """The rooms of these sorted slots, each with its part of them."""
        self._check_open()
        edges = np.searchsorted(slots, self._edges).tolist()
        for room, first, last in zip(self._rooms, edges[:-1], edges[1:], strict=True):
            if first < last:
                yield room, slots[first:last]

    def _check_open(self) -> None:
        if self.closing or not self._finalizer.alive:
            raise RuntimeError("The manager is closed.")


def stack_text(frames: Sequence[tuple[Any, int]]) -> str:
    """Where somebody is, given (frame, line) from the outermost to the innermost."""
    lines = traceback.StackSummary.extract(iter(frames)).format()
    return f"It was here (most recent call last):\n{shorten(''.join(lines), TRACE_LIMIT)}"


def _shut_down(executors: list[Any], rooms: list[LocalHost], timeout: float) -> None:
    """Let every thread end, and wait for all of them until one common deadline; one that hangs is left
    behind.
    """
    deadline = time.monotonic() + timeout
    for room in rooms:
        room.abandoned = True
    for executor in executors:
        executor.hang_up()
    for executor in executors:
        executor.thread.join(max(0.0, deadline - time.monotonic()))
        if executor.thread.is_alive():
            _log.warning(
                "%s still runs an environment after %g s: it is left behind, and ends when that returns.",
                executor.thread.name,
                timeout,
            )
    executors.clear()

"""A local host: environments that live in a thread of this process, with rows and commands of their own.

An environment that hangs in a thread cannot be killed, only left behind. So it reads and writes private
arrays that nothing else uses: commands are copied into them when they are posted, rows are copied out of them
when a letter with the answer has come. A host that is lost is abandoned as a whole, and a new one takes its
place: whatever still runs in the old one writes where nothing reads, and its letters are thrown away unread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Block, Commands, Fault, fault_of_error
from envs.backends.shard_host import ShardHost
from envs.base import Rows, Slots
from envs.layout import Layout


class OrderKind(Enum):
    """What a host is asked to do."""

    BUILD = 0
    RUN = 1
    RENDER = 2


class PrivateRows:
    """Private rows and commands of consecutive slots, and how they are copied from and to the public ones.

    All first hosts share one, since copying for many slots at once costs hardly more than for one. A host
    that takes a lost one's place has private rows of its own: what still runs in the old one may go on
    writing where it did.
    """

    def __init__(self, layout: Layout, public: Rows, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        # No task and no flag in the observation: the manager writes them into the public rows.
        self.layout = Layout(layout.spec)
        self.rows = self.layout.allocate(stop - start)
        self.commands = Commands.empty(self.rows)
        public_arrays = layout.part(public, start, stop).of_shard
        private_arrays = self.layout.part(self.rows, 0, stop - start).of_shard
        self._copies = list(zip(public_arrays, private_arrays, strict=True))

    def load(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Copy the commands of these slots; the originals may change at once."""
        own, (private, public) = self.commands, self._indices(slots)
        own.reset[private] = resets = commands.reset[public]
        own.action[private] = commands.action[public]
        # Only a reset reads the task and the seed.
        if resets.any():
            own.task[private] = commands.task[public]
            own.seed[private] = commands.seed[public]

    def deliver(self, slots: NDArray[np.int64]) -> None:
        """Copy the rows of these slots to the public ones."""
        index, _ = self._indices(slots)
        for public, private in self._copies:
            public[index] = private[index]

    def _indices(self, slots: NDArray[np.int64]) -> tuple[Slots, Slots]:
        """Return how to index the private arrays, and those of all slots."""
        # Slices where all slots are meant: they give views, which are much faster.
        if len(slots) == self.stop - self.start:
            return slice(None), slice(self.start, self.stop)
        return slots - self.start, slots


class LocalHost:
    """The environments of consecutive slots start..stop, from when they are built until closed or lost.

    The trainer's thread loads commands and delivers rows while nothing is asked of those slots; all else
    belongs to the thread that works here.
    """

    def __init__(self, number: int, blocks: Sequence[Block], private_rows: PrivateRows, threads: int) -> None:
        self.number, self.blocks, self.private_rows = number, blocks, private_rows
        self.start, self.stop = blocks[0].start, blocks[-1].stop
        self.abandoned = False
        self._threads = threads
        # Views of this host's part, in which slots count from 0.
        own = self.start - private_rows.start, self.stop - private_rows.start
        self.rows, self.commands = private_rows.rows.part(*own), private_rows.commands.part(*own)
        self.shard_host: ShardHost | None = None

    @property
    def slots(self) -> tuple[int, ...]:
        """All slots of this host."""
        return tuple(range(self.start, self.stop))

    # -- on the thread that works here -----------------------------------------------------------------------

    def build(self) -> None:
        """Make the environments."""
        # The inside counts slots from 0, as its private rows do.
        blocks = [
            Block(block.factory, block.start - self.start, block.stop - self.start) for block in self.blocks
        ]
        self.shard_host = ShardHost(
            blocks, self.private_rows.layout, self.rows, self._threads, first_slot=self.start
        )

    def run(self, slots: NDArray[np.int64]) -> None:
        """Carry out the commands of these slots."""
        assert self.shard_host is not None
        self.shard_host.run(slots - self.start, self.commands)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """Draw a picture, in an array that no later picture overwrites."""
        assert self.shard_host is not None
        return np.array(self.shard_host.render(slot - self.start), np.uint8)

    def close(self) -> None:
        """Close the environments, if there are any."""
        shard_host, self.shard_host = self.shard_host, None
        if shard_host is not None:
            # No Ctrl-C arrives on this thread: whatever is raised here comes from an environment.
            shard_host.close(passing=())

    def fault(self, error: BaseException, slots: NDArray[np.int64]) -> Fault:
        """Return the fault for an error that was raised while these slots ran."""
        return fault_of_error(error, tuple(slots.tolist()), self.slots, self.start)


# A host, and those of its slots that are to do something.
Order = tuple[LocalHost, NDArray[np.int64]]


def grouped_by_rows(orders: Iterable[Order]) -> Iterator[tuple[PrivateRows, NDArray[np.int64]]]:
    """Yield each private rows once, with all of its slots that occur in the orders."""
    # Arrays cannot be compared as keys, so the rows are known by their identity.
    groups: dict[int, tuple[PrivateRows, list[NDArray[np.int64]]]] = {}
    for host, slots in orders:
        groups.setdefault(id(host.private_rows), (host.private_rows, []))[1].append(slots)
    for private_rows, parts in groups.values():
        yield private_rows, parts[0] if len(parts) == 1 else np.concatenate(parts)


# -- letters -------------------------------------------------------------------------------------------------

MORE_THAN_EVER_COME = 2**62


class Letter(NamedTuple):
    """What a host answers: which slots, to which order, and the fault or the picture if there is one."""

    host: LocalHost
    slots: NDArray[np.int64]
    sequence: int
    kind: OrderKind
    fault: Fault | None = None
    picture: NDArray[np.uint8] | None = None


class Mailbox:
    """Letters from working threads to the one that waits, which wakes once for as many letters as it needs.

    The GIL orders the two sides: a letter is put before `_wanted` is read, and `_wanted` is written before
    the letters are counted, so one of the two sees the other. Nearly all of a hand-over is the waking (40 us,
    measured alike for locks and queues), hence one per wait.
    """

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._wanted = MORE_THAN_EVER_COME

    def put(self, letter: Letter) -> None:
        """Add a letter; any thread may call this."""
        self._letters.append(letter)
        if len(self._letters) >= self._wanted:
            self._bell.put(None)

    def take(self, count: int, deadline: float) -> list[Letter]:
        """Return all letters, as soon as there are `count`, or at the deadline."""
        letters = self._letters
        self._wanted = count
        # The bell may still ring for an earlier wait: the letters are counted again after each ring.
        while len(letters) < count:
            try:
                self._bell.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
            except Empty:
                break
        self._wanted = MORE_THAN_EVER_COME
        return [letters.popleft() for _ in range(len(letters))]

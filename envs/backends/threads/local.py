"""What the backends that stay in this process share: orders to hosts, letters from them, one way to wait.

Environments live in hosts, and threads work in the hosts. The trainer posts orders, and each host answers by
a letter into one mailbox (local_host.py). What becomes of an environment that raises or hangs:
  1. its letter brings the fault, or no letter comes until the deadline: then `_cut_off` makes the fault;
  2. `_mark_lost` abandons the host: its late letters are dropped, and its private rows are never read;
  3. `wait` returns the fault; the manager decides what follows, and calls `restore`;
  4. `restore` puts a new host in the same place, which builds the environments anew.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import (
    TRACE_LIMIT,
    Backend,
    BackendConfig,
    Block,
    Commands,
    Fault,
    construction_error,
    render_error,
    shorten,
)
from envs.backends.threads.local_host import (
    Letter,
    LocalHost,
    Mailbox,
    Order,
    OrderKind,
    PrivateRows,
    grouped_by_rows,
)
from envs.layout import Layout

_log = logging.getLogger(__name__)


class LocalBackend(Backend):
    """Posts orders to hosts and waits for their letters; a subclass has the threads that work there.

    A slot waits until it has its answer or is lost. An order is late when its answer has not come `timeout`
    after the first wait for it.
    """

    can_lag: ClassVar[bool] = True

    def __init__(
        self, divided: Sequence[Sequence[Block]], layout: Layout, threads: int, config: BackendConfig
    ) -> None:
        """`divided` holds the blocks of each host."""
        self._layout, self._threads, self._config = layout, threads, config
        num_slots = divided[-1][-1].stop
        self.rows = layout.allocate(num_slots)
        # The number of letters that came too late, from hosts that had been abandoned.
        self.dropped = 0
        self._mail = Mailbox()
        private_rows = PrivateRows(layout, self.rows, 0, num_slots)
        self._hosts = [
            LocalHost(number, blocks, private_rows, threads) for number, blocks in enumerate(divided)
        ]
        self._edges = np.array([host.start for host in self._hosts] + [num_slots])
        self._host_of_slot = np.repeat(np.arange(len(self._hosts)), np.diff(self._edges))
        self._largest_host = int(np.diff(self._edges).max())
        self._faults: list[Fault | None] = [None] * len(self._hosts)
        self._lost = np.zeros(num_slots, np.bool_)
        # Orders are numbered. A slot is ready when its last order has been answered.
        self._sequence = 0
        self._asked = np.zeros(num_slots, np.int64)
        self._answered = np.zeros(num_slots, np.int64)
        self._deadlines = np.full(num_slots, np.inf)
        self._picture: NDArray[np.uint8] | Fault | None = None
        # The finalizer knows the hosts and the threads, never the backend: a forgotten one closes itself.
        self._executors: list[Any] = []
        self._finalizer = weakref.finalize(
            self, _stop_threads, self._executors, self._hosts, config.close_timeout_s
        )

    def _construct(self) -> None:
        """Build all environments; a subclass calls this when its threads are there."""
        try:
            all_hosts = [(host, np.arange(host.start, host.stop)) for host in self._hosts]
            self._ask(OrderKind.BUILD, all_hosts)
            all_slots = np.arange(len(self._asked))
            _, faults = self.wait(all_slots, self._config.construct_timeout_s)
            if faults:
                raise construction_error(faults)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _hand_over(self, kind: OrderKind, orders: Sequence[Order], sequence: int) -> None:
        """Give the orders to the threads that work in the hosts; returns at once."""

    @abstractmethod
    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """Mark the hosts of these late slots as lost, with all that are stuck with them, and free the way.

        A thread that is stuck is replaced.
        """

    # -- the contract ----------------------------------------------------------------------------------------

    def post(self, slots: NDArray[np.int64], commands: Commands) -> None:
        # The next wait reports the faults of abandoned hosts.
        orders = [order for order in self._split(slots) if not order[0].abandoned]
        # The commands are copied before the threads get their orders: the caller may change them at once.
        for private_rows, own in grouped_by_rows(orders):
            private_rows.load(own, commands)
        self._ask(OrderKind.RUN, orders)

    def restore(self, slots: NDArray[np.int64], timeout: float) -> list[Fault]:
        self._check_open()
        orders: list[Order] = []
        for number in np.unique(self._host_of_slot[slots]).tolist():
            # The old host is not waited for: its thread may hang in it. It writes into rows of its own.
            old = self._hosts[number]
            old.abandoned = True
            private_rows = PrivateRows(self._layout, self.rows, old.start, old.stop)
            host = self._hosts[number] = LocalHost(number, old.blocks, private_rows, self._threads)
            self._faults[number] = None
            self._lost[host.start : host.stop] = False
            orders.append((host, np.arange(host.start, host.stop)))
        self._ask(OrderKind.BUILD, orders)
        if not orders:
            return []
        return self.wait(np.concatenate([own for _, own in orders]), timeout)[1]

    def render(self, slot: int, timeout: float) -> NDArray[np.uint8]:
        self._check_open()
        slots = np.array([slot])
        host = self._hosts[int(self._host_of_slot[slot])]
        if not host.abandoned:
            self._ask(OrderKind.RENDER, [(host, slots)])
        _, faults = self.wait(slots, timeout)
        picture, self._picture = faults[0] if faults else self._picture, None
        if isinstance(picture, Fault):
            raise render_error(slot, picture, lost=bool(faults))
        assert picture is not None
        return picture

    def close(self) -> None:
        self._finalizer()

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait(
        self, slots: NDArray[np.int64], timeout: float, min_ready: int | None = None
    ) -> tuple[NDArray[np.int64], list[Fault]]:
        # Posts, builds and pictures are all awaited here: until the slots are answered or lost.
        self._check_open()
        deadline = time.monotonic() + timeout
        may_lag = 0 if min_ready is None else max(0, len(slots) - min_ready)
        self._read(self._mail.take(0, deadline))
        while True:
            waiting = slots[(self._answered[slots] < self._asked[slots]) & ~self._lost[slots]]
            missing = len(waiting) - may_lag
            if missing <= 0:
                break
            # The deadline of a slot is set by the first wait for it, and later waits do not prolong it.
            self._deadlines[waiting] = np.minimum(self._deadlines[waiting], deadline)
            first_deadline = float(self._deadlines[waiting].min())
            # A letter answers no more slots than the largest host has, so fewer letters cannot be enough.
            letters = self._mail.take(-(-missing // self._largest_host), first_deadline)
            self._read(letters)
            if not letters and time.monotonic() >= first_deadline:
                self._check_open()
                self._cut_off(waiting[self._deadlines[waiting] <= first_deadline], timeout)
        lost = self._lost[slots]
        if not lost.any():
            return (np.setdiff1d(slots, waiting) if len(waiting) else slots), []
        return np.setdiff1d(slots[~lost], waiting), self._faults_of(slots[lost])

    def _faults_of(self, lost_slots: NDArray[np.int64]) -> list[Fault]:
        """Return the faults that lost these slots, each once: several hosts may have the same one."""
        numbers = dict.fromkeys(self._host_of_slot[lost_slots].tolist())
        faults = [self._faults[number] for number in numbers]
        return list({id(fault): fault for fault in faults if fault is not None}.values())

    def _read(self, letters: Sequence[Letter]) -> None:
        """Take the answers, and then copy all new rows at once."""
        answered: list[Order] = []
        for host, slots, sequence, kind, fault, picture in letters:
            # The answer of an abandoned host is late: its slots may have another host by now.
            if host.abandoned:
                self.dropped += 1
                continue
            # A picture that could not be drawn costs nothing else.
            if kind is OrderKind.RENDER:
                self._picture = fault or picture
            elif fault is not None:
                self._mark_lost([host], fault)
                continue
            elif kind is OrderKind.RUN:
                answered.append((host, slots))
            self._answered[slots] = sequence
            self._deadlines[slots] = np.inf
        for private_rows, slots in grouped_by_rows(answered):
            private_rows.deliver(slots)

    def _mark_lost(self, hosts: Sequence[LocalHost], fault: Fault) -> None:
        """Note that all environments of these hosts are gone: nothing that they send counts any more."""
        for host in hosts:
            host.abandoned = True
            self._faults[host.number] = fault
            self._lost[host.start : host.stop] = True
            self._deadlines[host.start : host.stop] = np.inf

    def _ask(self, kind: OrderKind, orders: Sequence[Order]) -> None:
        self._sequence += 1
        for _, slots in orders:
            self._asked[slots] = self._sequence
        self._hand_over(kind, orders, self._sequence)

    def _split(self, slots: NDArray[np.int64]) -> Iterator[Order]:
        """Yield the hosts of these sorted slots, each with its part of them."""
        self._check_open()
        edges = np.searchsorted(slots, self._edges).tolist()
        for host, first, last in zip(self._hosts, edges[:-1], edges[1:], strict=True):
            if first < last:
                yield host, slots[first:last]

    def _check_open(self) -> None:
        if self.closing or not self._finalizer.alive:
            raise RuntimeError("The manager is closed.")


def stack_of_thread(thread: threading.Thread) -> str:
    """Return where a thread is, as text; empty if it has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else stack_text(list(traceback.walk_stack(frame))[::-1])


def stack_text(frames: Sequence[tuple[Any, int]]) -> str:
    """Return a stack as text, given (frame, line) from the outermost to the innermost."""
    lines = traceback.StackSummary.extract(iter(frames)).format()
    return f"It was here (most recent call last):\n{shorten(''.join(lines), TRACE_LIMIT)}"


def _stop_threads(executors: list[Any], hosts: list[LocalHost], timeout: float) -> None:
    """Let every thread end, and wait until one common deadline; a thread that hangs is left behind."""
    # Abandoned hosts carry out no more orders, and close their environments in their own threads.
    deadline = time.monotonic() + timeout
    for host in hosts:
        host.abandoned = True
    for executor in executors:
        executor.ask_to_stop()
    for executor in executors:
        executor.thread.join(max(0.0, deadline - time.monotonic()))
        if executor.thread.is_alive():
            _log.warning(
                "%s still runs an environment after %g s: it is left behind, and ends when that returns.",
                executor.thread.name,
                timeout,
            )
    executors.clear()

"""The thread backend: a few threads that step the slots, for environments that release the GIL or wait."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, Block, Fault, segments_of
from envs.backends.threads.local import LocalBackend, stack_of_thread
from envs.backends.threads.local_host import Letter, LocalHost, Mailbox, Order, OrderKind
from envs.layout import Layout
from utils.machine import available_cores


class _WorkerThread:
    """A thread and its orders.

    It knows its hosts and the mailbox, never the backend, so that a forgotten backend can close itself.
    """

    def __init__(self, number: int, mail: Mailbox) -> None:
        self.number = number
        self.orders: SimpleQueue[tuple[OrderKind, LocalHost, NDArray[np.int64], int] | None] = SimpleQueue()
        # The slots of the order that the thread carries out now.
        self.running_slots: NDArray[np.int64] | None = None
        self.thread = threading.Thread(
            target=self._work, args=(mail,), name=f"environments of thread {number}", daemon=True
        )
        self.thread.start()

    def ask_to_stop(self) -> None:
        self.orders.put(None)

    def _work(self, mail: Mailbox) -> None:
        """Carry out orders until there are no more; then close what is left."""
        hosts: list[LocalHost] = []
        while (order := self.orders.get()) is not None:
            kind, host, slots, sequence = order
            # A host that is lost does nothing more; the trainer knows of it, or finds its letter.
            if host.abandoned or (kind is not OrderKind.BUILD and host.shard_host is None):
                continue
            if kind is OrderKind.BUILD:
                hosts = [host, *(other for other in hosts if other.shard_host is not None)]
            self.running_slots = slots
            letter = _execute(kind, host, slots, sequence)
            self.running_slots = None
            mail.put(letter)
            # The host was given up while it worked, or its environment has failed: nothing uses it any more.
            if host.abandoned or (letter.fault is not None and kind is not OrderKind.RENDER):
                host.close()
        for host in hosts:
            host.close()


def _execute(kind: OrderKind, host: LocalHost, slots: NDArray[np.int64], sequence: int) -> Letter:
    """Carry out one order; return the letter that answers it."""
    try:
        if kind is OrderKind.RUN:
            host.run(slots)
        elif kind is OrderKind.BUILD:
            host.build()
        else:
            return Letter(host, slots, sequence, kind, picture=host.render(int(slots[0])))
    except BaseException as error:  # noqa: BLE001 - sys.exit() would end this thread
        return Letter(host, slots, sequence, kind, host.fault(error, slots))
    return Letter(host, slots, sequence, kind)


class ThreadBackend(LocalBackend):
    """Threads with an even part of every group each; a thread carries out its orders one after the other.

    One thread alone still has a use: with two groups it steps one (with the family's own threads) while the
    trainer acts for the other.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        layout: Layout,
        *,
        num_workers: int,
        num_groups: int = 1,
        config: BackendConfig,
    ) -> None:
        segments = segments_of(blocks, num_workers, num_groups)
        inner_threads = config.threads or (1 if num_workers > 1 else available_cores())
        super().__init__([segment.blocks for segment in segments], layout, inner_threads, config)
        self._worker_of_host = [segment.worker for segment in segments]
        self._workers: list[_WorkerThread] = self._executors
        self._workers += [_WorkerThread(number, self._mail) for number in range(num_workers)]
        self._construct()

    @property
    def description(self) -> str:
        count = len(self._workers)
        inner = f", up to {self._threads} threads inside" if self._threads > 1 else ""
        unit = "threads" if count > 1 else "thread"
        return f"{count} {unit}{inner}"

    def _hand_over(self, kind: OrderKind, orders: Sequence[Order], sequence: int) -> None:
        for host, slots in orders:
            self._workers[self._worker_of_host[host.number]].orders.put((kind, host, slots, sequence))

    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """Leave the late threads behind, with all their hosts: a thread cannot be killed.

        Such a thread ends when the call that it is in returns.
        """
        for number in sorted({self._worker_of_host[host] for host in self._host_of_slot[late].tolist()}):
            # Orders behind the one that hangs are never carried out: the thread loses all of its hosts.
            worker = self._workers[number]
            hosts = [host for host in self._hosts if self._worker_of_host[host.number] == number]
            lost = tuple(slot for host in hosts for slot in host.slots)
            # What the thread does now is what hangs; if it does nothing, every late slot is named.
            running = worker.running_slots
            culprits = late[np.isin(late, lost)] if running is None else running
            sentence = f"gave no answer within {timeout:g} s"
            self._mark_lost(
                hosts, Fault(tuple(culprits.tolist()), sentence, stack_of_thread(worker.thread), lost)
            )
            worker.ask_to_stop()
            self._workers[number] = _WorkerThread(number, self._mail)

"""The thread backend: a few threads that step the slots, for environments that release the GIL or wait."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, Block, Fault, segments_of
from envs.backends.threads.local import (
    Letter,
    LetterKind,
    LocalBackend,
    LocalHost,
    Mailbox,
    Order,
    stack_text,
)
from envs.layout import Layout
from utils.machine import available_cores


class _Worker:
    """A thread and its orders. It knows its rooms and the mailbox, never the backend, so that a forgotten
    backend can close itself.
    """

    def __init__(self, number: int, mail: Mailbox) -> None:
        self.number = number
        self.orders: SimpleQueue[tuple[LetterKind, LocalHost, NDArray[np.int64], int] | None] = SimpleQueue()
        self.doing: NDArray[np.int64] | None = None
        self.thread = threading.Thread(
            target=self._live, args=(mail,), name=f"environments of thread {number}", daemon=True
        )
        self.thread.start()

    def hang_up(self) -> None:
        self.orders.put(None)

    def where_it_is(self) -> str:
        """Its stack as text."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return stack_text(list(traceback.walk_stack(frame))[::-1]) if frame is not None else ""

    def _live(self, mail: Mailbox) -> None:
        rooms: list[LocalHost] = []
        while (order := self.orders.get()) is not None:
            kind, room, slots, sequence = order
            if room.abandoned or (
                kind is not LetterKind.BUILD and room.host is None
            ):  # lost, or failed before: the trainer knows, or is being told
                continue
            rooms = (
                [room, *(one for one in rooms if one.host is not None)] if kind is LetterKind.BUILD else rooms
            )
            self.doing = slots
            letter = _carry_out(kind, room, slots, sequence)
            self.doing = None
            mail.put(letter)
            if room.abandoned or (letter.fault is not None and kind is not LetterKind.RENDER):
                room.close()
        for room in rooms:
            room.close()


def _carry_out(kind: LetterKind, room: LocalHost, slots: NDArray[np.int64], sequence: int) -> Letter:
    try:
        if kind is LetterKind.RUN:
            room.run(slots)
        elif kind is LetterKind.BUILD:
            room.build()
        else:
            return Letter(room, slots, sequence, kind, picture=room.render(int(slots[0])))
    except BaseException as error:  # noqa: BLE001 - whatever an environment raises becomes a fault, sys.exit() too: it would end this thread in silence
        return Letter(room, slots, sequence, kind, room.fault(error, slots))
    return Letter(room, slots, sequence, kind)


class ThreadBackend(LocalBackend):
    """Threads with an even part of every group each; what a thread is told it does in order.

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
        super().__init__(
            [segment.blocks for segment in segments],
            layout,
            config.threads or (1 if num_workers > 1 else available_cores()),
            config,
        )
        self._worker_of = [segment.worker for segment in segments]
        self._workers: list[_Worker] = self._executors
        self._workers += [_Worker(number, self._mail) for number in range(num_workers)]
        self._construct()

    @property
    def description(self) -> str:
        count = len(self._workers)
        inner = f", up to {self._threads} threads inside" if self._threads > 1 else ""
        return f"{count} thread{'s' if count > 1 else ''}{inner}"

    def _hand_over(self, kind: LetterKind, orders: Sequence[Order], sequence: int) -> None:
        for room, slots in orders:
            self._workers[self._worker_of[room.number]].orders.put((kind, room, slots, sequence))

    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """A thread cannot be killed: it is left behind, with all its rooms, and ends when its call returns."""
        for number in sorted({self._worker_of[room] for room in self._room_of[late].tolist()}):
            worker = self._workers[number]
            rooms = [room for room in self._rooms if self._worker_of[room.number] == number]
            lost = tuple(slot for room in rooms for slot in room.slots)
            doing = worker.doing
            culprits = late[np.isin(late, lost)] if doing is None else doing
            self._lose(
                rooms,
                Fault(
                    tuple(culprits.tolist()),
                    f"gave no answer within {timeout:g} s",
                    worker.where_it_is(),
                    lost,
                ),
            )
            worker.hang_up()
            self._workers[number] = _Worker(number, self._mail)

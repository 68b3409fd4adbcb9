"""The asyncio backend: one event loop in a thread of its own, for hundreds of environments that wait."""

from __future__ import annotations

import logging
import select
import selectors
import sys
import threading
import traceback
from collections.abc import Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, Block, Fault, cut_blocks
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

if (
    TYPE_CHECKING
):  # imported when the first loop is made: every worker process of every other backend would pay for asyncio
    import asyncio

    from envs.async_shard import AsyncShard

_log = logging.getLogger(__name__)

EPOLL: Any = getattr(selectors, "EpollSelector", ())
"""not every system has it"""
SELECTABLE = 1024
"""descriptors from here on are too large for select()"""
STUCK_AFTER_S = 1.0
"""how long, at most, a loop may take to answer a call before it counts as stuck"""


class PunctualSelector(selectors.DefaultSelector):
    """Epoll waits in whole milliseconds, and asyncio rounds them up: a tenth of a ten-millisecond timer. The
    descriptor of epoll can itself be waited for, in microseconds.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after at most so many seconds."""
        if timeout is not None and timeout > 0 and isinstance(self, EPOLL) and self.fileno() < SELECTABLE:
            select.select((self,), (), (), timeout)
            timeout = 0
        return super().select(timeout)


class _Loop:
    """An event loop and its thread. It knows rooms and the mailbox, never the backend, so that a forgotten
    backend can close itself.
    """

    def __init__(self, mail: Mailbox) -> None:
        import asyncio

        from envs.async_shard import AsyncShard

        self._asyncio, self._coroutine_shard = asyncio, AsyncShard
        self._mail = mail
        self._rooms: set[LocalHost] = set()
        self._tasks: dict[LocalHost, asyncio.Task[None]] = {}
        self._ending = False
        self.loop = asyncio.SelectorEventLoop(PunctualSelector())
        self.loop.set_exception_handler(
            lambda _, context: _log.warning("In the loop of the environments: %s", context.get("message"))
        )
        self.thread = threading.Thread(target=self._live, name="event loop of the environments", daemon=True)
        self.thread.start()

    # -- on the trainer's thread -----------------------------------------------------------------------------

    def hand_over(self, kind: LetterKind, orders: Sequence[Order], sequence: int) -> None:
        """Start all of them, with one call."""
        self.loop.call_soon_threadsafe(self._start, kind, orders, sequence)

    def is_stuck(self, patience: float) -> bool:
        """Whether somebody keeps the loop from running."""
        pong: SimpleQueue[None] = SimpleQueue()
        self.loop.call_soon_threadsafe(pong.put, None)
        try:
            pong.get(timeout=patience)
        except Empty:
            return True
        return False

    def where_is(self, room: LocalHost) -> str:
        """Where the coroutine of this room waits, as text."""
        task = self._tasks.get(room)
        return "" if task is None else stack_text(_frames_of(task))

    def cancel(self, room: LocalHost) -> None:
        """End what runs in this room, which must be lost by now: its end is nothing to be told."""
        task = self._tasks.get(room)
        if task is not None:
            self.loop.call_soon_threadsafe(task.cancel)

    def who_runs(self) -> LocalHost | None:
        """The room whose turn it is."""
        current = self._asyncio.current_task(self.loop)
        return next((room for room, task in list(self._tasks.items()) if task is current), None)

    def where_it_is(self) -> str:
        """The stack of the thread, as text."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return stack_text(list(traceback.walk_stack(frame))[::-1]) if frame is not None else ""

    def hang_up(self) -> None:
        self.loop.call_soon_threadsafe(self._end)

    # -- on the loop's thread --------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self._close_all())
        finally:
            self.loop.close()

    def _end(self) -> None:
        self._ending = True
        self.loop.stop()

    def _start(self, kind: LetterKind, orders: Sequence[Order], sequence: int) -> None:
        for room, slots in [] if self._ending else orders:
            self._tasks[room] = self.loop.create_task(self._carry_out(kind, room, slots, sequence))

    async def _carry_out(
        self, kind: LetterKind, room: LocalHost, slots: NDArray[np.int64], sequence: int
    ) -> None:
        fault, picture = None, None
        try:
            if kind is LetterKind.RUN:
                await self._run(room, slots)
            elif kind is LetterKind.BUILD:
                self._rooms.add(room)
                room.build()
            else:
                picture = room.render(int(slots[0]))
        except GeneratorExit:
            raise  # thrown away with its loop
        except BaseException as error:  # noqa: BLE001 - whatever an environment raises becomes a fault; sys.exit() and Ctrl-C would end the loop
            fault = room.fault(error, slots)
            if room.abandoned and isinstance(error, self._asyncio.CancelledError):
                await self._close(room)
                return
        self._mail.put(Letter(room, slots, sequence, kind, fault, picture))
        if room.abandoned or (fault is not None and kind is not LetterKind.RENDER):
            await self._close(room)

    async def _run(self, room: LocalHost, slots: NDArray[np.int64]) -> None:
        shard = self._coroutines_of(room)
        if shard is None:
            return room.run(slots)
        assert room.host is not None
        rows, commands, zero = room.rows, room.commands, slots - room.start
        if commands.reset[0]:
            rows.reward[0] = 0.0
            rows.terminated[0] = rows.truncated[0] = False
            await shard.reset_slot(0, commands.task[0].copy(), int(commands.seed[0]))
        else:
            await shard.step_slot(0, commands.action[0].copy())
        return room.host.check(zero)

    def _coroutines_of(self, room: LocalHost) -> AsyncShard | None:
        shard = room.host.shards[0] if room.host is not None else None
        return shard if isinstance(shard, self._coroutine_shard) else None

    async def _close(self, room: LocalHost) -> None:
        self._rooms.discard(room)
        self._tasks.pop(room, None)
        shard = self._coroutines_of(room)
        if shard is None:
            return room.close()
        room.host = None
        try:
            await shard.close_slot(0)
        except (GeneratorExit, self._asyncio.CancelledError):
            raise
        except BaseException:  # noqa: BLE001 - whatever it raises, it is thrown away; sys.exit() and Ctrl-C would end the loop
            _log.warning("The environment of slot %d failed to close.", room.start, exc_info=True)

    async def _close_all(self) -> None:
        """Cancel what still runs, then close every room."""
        tasks = [task for task in self._asyncio.all_tasks() if task is not self._asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await self._asyncio.gather(*tasks, return_exceptions=True)
        await self._asyncio.gather(*(self._close(room) for room in list(self._rooms)), return_exceptions=True)


def _frames_of(task: asyncio.Task[None]) -> list[tuple[Any, int]]:
    """(frame, line) of each coroutine that waits for the next one, from the outermost."""
    found: list[tuple[Any, int]] = []
    waiting: Any = task.get_coro()
    while isinstance(waiting, Coroutine) and (frame := getattr(waiting, "cr_frame", None)) is not None:
        found.append((frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None)
    return found


class AsyncioBackend(LocalBackend):
    """One event loop for all slots, each with a shard of its own, so that one that fails or hangs loses
    nobody else.

    Made for families whose shards are `AsyncShard`s. Others work too, but one after the other: they are
    stepped in the loop itself. One that hangs there (or a coroutine that blocks instead of waiting) stops the
    loop; then all slots are lost, and a new loop takes its place.
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
        if num_workers > 1:
            raise ValueError(
                f"The asyncio backend has one event loop; num_workers={num_workers} needs another backend."
            )
        super().__init__(
            [cut_blocks(blocks, slot, slot + 1) for slot in range(blocks[-1].stop)],
            layout,
            config.threads or 1,
            config,
        )
        self._loops: list[_Loop] = self._executors
        self._loops.append(_Loop(self._mail))
        self._construct()

    @property
    def description(self) -> str:
        return f"{len(self._rooms)} coroutines in an event loop"

    def _hand_over(self, kind: LetterKind, orders: Sequence[Order], sequence: int) -> None:
        self._loops[0].hand_over(kind, orders, sequence)

    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """A coroutine is cancelled; a loop that does not even answer is left behind, and ends when the call
        that stops it returns.
        """
        loop = self._loops[0]
        if not loop.is_stuck(min(timeout, STUCK_AFTER_S)):
            for slot in late.tolist():
                room = self._rooms[slot]
                self._lose(
                    [room],
                    Fault(
                        room.slots, f"gave no answer within {timeout:g} s", loop.where_is(room), room.slots
                    ),
                )
                loop.cancel(room)
            return
        culprit = loop.who_runs()
        slots = tuple(late.tolist()) if culprit is None else culprit.slots
        everyone = tuple(range(len(self._rooms)))
        self._lose(
            self._rooms,
            Fault(
                slots,
                f"stopped the event loop and gave no answer within {timeout:g} s",
                loop.where_it_is(),
                everyone,
            ),
        )
        loop.hang_up()
        self._loops[0] = _Loop(self._mail)

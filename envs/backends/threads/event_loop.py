"""The asyncio backend: one event loop in a thread of its own, for hundreds of environments that wait."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, Block, Fault, cut_blocks, report_of
from envs.backends.threads.local import LocalBackend, stack_of_thread, stack_text
from envs.backends.threads.local_host import Letter, LocalHost, Mailbox, Order, OrderKind
from envs.home_process import HomeProcess
from envs.layout import Layout

# Imported when the first loop is made: else the worker processes of every backend would pay for asyncio.
if TYPE_CHECKING:
    import asyncio

    from envs.async_shard import AsyncShard

_log = logging.getLogger(__name__)

# How long, at most, a loop may take to answer a call before it counts as stuck.
STUCK_AFTER_S = 1.0


class _HostLoop:
    """An event loop in a thread of its own, and the hosts that live in it.

    It knows hosts and the mailbox, never the backend, so that a forgotten backend can close itself.
    """

    def __init__(self, mail: Mailbox) -> None:
        import asyncio

        from envs.async_shard import AsyncShard
        from envs.loop_thread import LoopThread

        self._asyncio, self._coroutine_shard = asyncio, AsyncShard
        self._mail = mail
        self._hosts: set[LocalHost] = set()
        self._tasks: dict[LocalHost, asyncio.Task[None]] = {}
        # From now on orders find no loop to run in.
        self._closing = False
        self._home = HomeProcess()
        self._runner = LoopThread("event loop of the environments")
        self.loop, self.thread = self._runner.loop, self._runner.thread

    # -- on the trainer's thread -----------------------------------------------------------------------------

    def hand_over(self, kind: OrderKind, orders: Sequence[Order], sequence: int) -> None:
        """Start all of the orders, with one call."""
        self.loop.call_soon_threadsafe(self._start, kind, orders, sequence)

    def is_stuck(self, patience: float) -> bool:
        """Return whether something blocks the loop for so many seconds."""
        # A loop that runs carries out this call at once.
        pong: SimpleQueue[None] = SimpleQueue()
        self.loop.call_soon_threadsafe(pong.put, None)
        try:
            pong.get(timeout=patience)
        except Empty:
            return True
        return False

    def stack_of(self, host: LocalHost) -> str:
        """Return where the coroutine of this host waits, as text."""
        task = self._tasks.get(host)
        return "" if task is None else stack_text(_frames_of(task))

    def cancel(self, host: LocalHost) -> None:
        """Cancel what runs in this host, which must be marked as lost before: no letter reports its end."""
        task = self._tasks.get(host)
        if task is not None:
            self.loop.call_soon_threadsafe(task.cancel)

    def running_host(self) -> LocalHost | None:
        """Return the host whose coroutine the loop is in."""
        current = self._asyncio.current_task(self.loop)
        return next((host for host, task in list(self._tasks.items()) if task is current), None)

    def ask_to_stop(self) -> None:
        self.loop.call_soon_threadsafe(self._end)

    # -- on the loop's thread --------------------------------------------------------------------------------

    def _end(self) -> None:
        # The environments are closed in the loop in which they have lived.
        self._closing = True
        self._runner.end(self._close_all)

    def _start(self, kind: OrderKind, orders: Sequence[Order], sequence: int) -> None:
        if self._closing:
            return
        for host, slots in orders:
            self._tasks[host] = self.loop.create_task(self._execute(kind, host, slots, sequence))

    async def _execute(
        self, kind: OrderKind, host: LocalHost, slots: NDArray[np.int64], sequence: int
    ) -> None:
        """Carry out one order, and put the letter that answers it into the mailbox."""
        fault, picture = None, None
        try:
            with self._home:
                if kind is OrderKind.RUN:
                    await self._run(host, slots)
                elif kind is OrderKind.BUILD:
                    self._hosts.add(host)
                    host.build()
                else:
                    picture = host.render(int(slots[0]))
        except BaseException as error:
            # Outside of its loop the coroutine is thrown away: it may not await any more.
            if isinstance(error, GeneratorExit) and not self.loop.is_running():
                raise
            fault = host.fault(error, slots)
            if host.abandoned and isinstance(error, self._asyncio.CancelledError):
                await self._close(host)  # `cancel` has ended it
                return
        self._mail.put(Letter(host, slots, sequence, kind, fault, picture))
        # The host was given up while it worked, or its environment has failed: nothing uses it any more.
        if host.abandoned or (fault is not None and kind is not OrderKind.RENDER):
            await self._close(host)

    async def _run(self, host: LocalHost, slots: NDArray[np.int64]) -> None:
        """Step or reset: a shard of coroutines is awaited, any other one is stepped in the loop itself."""
        shard = self._async_shard_of(host)
        if shard is None:
            host.run(slots)
            return
        assert host.shard_host is not None
        # Every host has one slot, which the shard calls 0. This is ShardHost.run with `await`.
        rows, commands = host.rows, host.commands
        if commands.reset[0]:
            rows.reward[0] = 0.0
            rows.terminated[0] = rows.truncated[0] = False
            await shard.reset_slot(0, commands.task[0].copy(), int(commands.seed[0]))
        else:
            await shard.step_slot(0, commands.action[0].copy())
        host.shard_host.check(slots - host.start)

    def _async_shard_of(self, host: LocalHost) -> AsyncShard | None:
        shard = host.shard_host.shards[0] if host.shard_host is not None else None
        return shard if isinstance(shard, self._coroutine_shard) else None

    async def _close(self, host: LocalHost) -> None:
        self._hosts.discard(host)
        self._tasks.pop(host, None)
        shard = self._async_shard_of(host)
        if shard is None:
            host.close()
            return
        host.shard_host = None
        try:
            await shard.close_slot(0)
        except (GeneratorExit, self._asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - it is thrown away; sys.exit() would end the loop
            report = report_of(error)
            _log.warning("The environment of slot %d failed to close.\n%s", host.start, report)

    async def _close_all(self) -> None:
        # Exceptions are only collected: what fails to end does not stop the others.
        await self._asyncio.gather(*(self._close(host) for host in list(self._hosts)), return_exceptions=True)


def _frames_of(task: asyncio.Task[None]) -> list[tuple[Any, int]]:
    """Return (frame, line) of each coroutine that waits for the next one, from the outermost."""
    frames: list[tuple[Any, int]] = []
    waiting: Any = task.get_coro()
    while isinstance(waiting, Coroutine) and (frame := getattr(waiting, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None)
    return frames


class AsyncioBackend(LocalBackend):
    """One event loop for all slots, each with a shard of its own: one that fails or hangs loses no other.

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
        blocks_of_slots = [cut_blocks(blocks, slot, slot + 1) for slot in range(blocks[-1].stop)]
        super().__init__(blocks_of_slots, layout, config.threads or 1, config)
        self._loops: list[_HostLoop] = self._executors
        self._loops.append(_HostLoop(self._mail))
        self._construct()

    @property
    def description(self) -> str:
        return f"{len(self._hosts)} coroutines in an event loop"

    def _hand_over(self, kind: OrderKind, orders: Sequence[Order], sequence: int) -> None:
        self._loops[0].hand_over(kind, orders, sequence)

    def _cut_off(self, late: NDArray[np.int64], timeout: float) -> None:
        """Cancel the late coroutines, or leave behind a loop that is stuck, with all slots.

        A stuck loop ends when the call that stops it returns.
        """
        # The loop answers: only these coroutines hang, and each can be cancelled by itself.
        loop = self._loops[0]
        if not loop.is_stuck(min(timeout, STUCK_AFTER_S)):
            sentence = f"gave no answer within {timeout:g} s"
            for slot in late.tolist():
                host = self._hosts[slot]
                self._mark_lost([host], Fault(host.slots, sentence, loop.stack_of(host), host.slots))
                loop.cancel(host)
            return
        # The loop does not answer: one host blocks it, and no other one can run in it.
        culprit = loop.running_host()
        slots = tuple(late.tolist()) if culprit is None else culprit.slots
        all_slots = tuple(range(len(self._hosts)))
        sentence = f"stopped the event loop and gave no answer within {timeout:g} s"
        self._mark_lost(self._hosts, Fault(slots, sentence, stack_of_thread(loop.thread), all_slots))
        loop.ask_to_stop()
        self._loops[0] = _HostLoop(self._mail)

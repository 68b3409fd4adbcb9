"""LoopThread: an event loop that runs in a thread of its own, also while nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import select
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterable
from queue import SimpleQueue
from typing import Any, TypeVar

from envs.home_process import HomeProcess

_log = logging.getLogger(__name__)

# Not every system has it.
EPOLL: Any = getattr(selectors, "EpollSelector", ())
# Descriptors from here on are too large for select().
SELECTABLE = 1024

T = TypeVar("T")
Work = Coroutine[Any, Any, None]


class PunctualSelector(selectors.DefaultSelector):
    """A selector that keeps short time-outs.

    Epoll waits in whole milliseconds, and asyncio rounds them up: a tenth of a ten-millisecond timer. The
    descriptor of epoll can itself be waited for, in microseconds.

    Epoll also belongs to all forks of a process together: one that an environment makes in a coroutine is
    ended before it takes an event away from its parent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._home = HomeProcess()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, after at most so many seconds."""
        self._home.end_forks()
        if timeout is not None and timeout > 0 and isinstance(self, EPOLL) and self.fileno() < SELECTABLE:
            select.select((self,), (), (), timeout)
            timeout = 0
        return super().select(timeout)


class LoopThread:
    """An event loop in a thread of its own, which runs until `end`.

    Its connections stay alive between calls: keep-alives are answered while the caller computes. The thread
    holds the loop and nothing that it serves, so what forgets a LoopThread can end it in a finalizer.
    """

    def __init__(self, name: str) -> None:
        self._ends = False
        self._stop_was_told = False
        self.loop = asyncio.SelectorEventLoop(PunctualSelector())
        self.loop.set_exception_handler(_warn)
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    # -- on other threads ------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop and wait for what it returns; its error is raised here.

        If this thread is interrupted (Ctrl-C), the work is cancelled, and has ended before this returns.
        """
        ended: SimpleQueue[asyncio.Task[T] | None] = SimpleQueue()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(ended.put)

        def give_up() -> None:
            # The loop keeps the order of calls: without a task now, `start` was never handed over.
            if tasks and not tasks[0].done():
                tasks[0].cancel()
                return
            work.close()
            ended.put(None)

        # An interruption may come at any place in here, also before the work has begun or after its end.
        try:
            self.loop.call_soon_threadsafe(start)
            task = ended.get()
        except BaseException:
            self.loop.call_soon_threadsafe(give_up)
            ended.get()
            raise
        assert task is not None
        return task.result()

    def end(self, last: Callable[[], Work] | None = None) -> None:
        """Cancel all tasks, run the last one, and end the loop and its thread; this waits for nothing."""
        self.loop.call_soon_threadsafe(self._start_ending, last)

    # -- on the loop's thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._ends:
                self._run_until_stopped()
        finally:
            self.loop.close()

    def _run_until_stopped(self) -> None:
        """Run the loop until it ends, or until an environment stops it.

        An environment can do that by `stop`, or by `sys.exit` in a task of its own. What waits in the loop is
        still there then, so the loop can go on as if nothing had happened.
        """
        reason = "It called stop()."
        try:
            self.loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - third-party code: no Ctrl-C arrives on this thread
            reason = f"{type(error).__name__}: {error}"
        if not self._ends and not self._stop_was_told:
            self._stop_was_told = True
            _log.warning(
                "An environment stopped the event loop, which goes on. (This is told once.)\n%s", reason
            )

    def _start_ending(self, last: Callable[[], Work] | None) -> None:
        self.loop.create_task(self._end(last)).add_done_callback(lambda _: self._leave())

    async def _end(self, last: Callable[[], Work] | None) -> None:
        await cancel_all(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
        if last is not None:
            await last()
            await cancel_all(task for task in asyncio.all_tasks() if task is not asyncio.current_task())

    def _leave(self) -> None:
        self._ends = True
        self.loop.stop()


def _warn(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong in the loop and reaches no caller."""
    error = context.get("exception")
    # These have stopped the loop, which was told then.
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return
    reason = "" if error is None else f" ({type(error).__name__}: {error})"
    _log.warning("In the loop of the environments: %s%s", context.get("message"), reason)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and wait until they have ended; what they raise meanwhile is not raised here."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)

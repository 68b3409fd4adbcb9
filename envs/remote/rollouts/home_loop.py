"""HomeLoop: an event loop that starts when it is first needed and stays: connections belong to a loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from envs.loop_thread import LoopThread

T = TypeVar("T")


class HomeLoop:
    """A `LoopThread` for those who may not need one; it ends with its owner at the latest."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._thread: LoopThread | None = None
        self._forgotten: weakref.finalize[Any, Any] | None = None

    @property
    def thread(self) -> LoopThread:
        """The loop, which is started by this."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread(self._name)
                self._forgotten = weakref.finalize(self, self._thread.end)
            return self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; another thread than the loop's waits for it."""
        return self.thread.run(work)

    async def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns, awaited in any loop; if that is cancelled, the work has ended too."""
        loop = self.thread.loop
        if asyncio.get_running_loop() is loop:
            return await work
        ended: Future[None] = Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.set_result(None))

        loop.call_soon_threadsafe(start)
        waiting = asyncio.wrap_future(ended)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            await waiting
            raise
        return tasks[0].result()

    def end(self) -> None:
        """End the loop, and wait for its thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._forgotten is not None:
            self._forgotten()
            thread.thread.join()


_shared: weakref.WeakValueDictionary[int, HomeLoop] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def shared_loop() -> HomeLoop:
    """The loop of this process for everything that keeps it; it ends when nobody does any more."""
    with _lock:
        loop = _shared.get(os.getpid())
        if loop is None:
            loop = _shared[os.getpid()] = HomeLoop("sessions of clients")
        return loop

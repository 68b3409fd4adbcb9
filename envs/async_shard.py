"""AsyncShard: slots as coroutines, for environments that wait for a socket, a service or a simulator."""

from __future__ import annotations

import asyncio
import weakref
from abc import abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Shard, SlotError
from envs.loop_thread import LoopThread, cancel_all


class AsyncShard(Shard):
    """A shard that steps each slot by a coroutine of its own; the slots of one call wait at the same time.

    It works on every backend. On `backend=asyncio` all slots of the run share one event loop; elsewhere the
    shard has a loop of its own. Both run in threads of their own all the time: a connection is kept alive
    while the trainer learns, and the thread that steps may run a loop itself, as a notebook does. What
    belongs to a loop (a connection, a lock) must be made in a coroutine, not in the constructor. A coroutine
    that is cancelled must end soon.
    """

    _loop: LoopThread | None = None
    _forgotten: weakref.finalize[Any, Any] | None = None

    @abstractmethod
    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        """Start an episode of `task` with `seed`: write obs and info of the slot's row.

        The backend has zeroed reward, terminated and truncated before.
        """

    @abstractmethod
    async def step_slot(self, slot: int, action: Any) -> None:
        """Step the slot: write obs, reward, terminated, truncated and info of its row."""

    async def close_slot(self, slot: int) -> None:
        """Free what the slot holds; called once."""
        return

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        starts = zip(slots.tolist(), tasks, seeds.tolist(), strict=True)
        self._run(slots, (self.reset_slot(slot, task, seed) for slot, task, seed in starts))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        commands = zip(slots.tolist(), actions, strict=True)
        self._run(slots, (self.step_slot(slot, action) for slot, action in commands))

    def close(self) -> None:
        # Every slot is closed, even if closing another one fails.
        try:
            slots = np.arange(len(self.rows.reward))
            self._run(slots, (self.close_slot(slot) for slot in slots.tolist()), stop_at_failure=False)
        finally:
            loop, self._loop = self._loop, None
            if loop is not None and self._forgotten is not None:
                self._forgotten()
                loop.thread.join()

    def _run(
        self,
        slots: NDArray[np.int64],
        coroutines: Iterable[Coroutine[Any, Any, None]],
        *,
        stop_at_failure: bool = True,
    ) -> None:
        """Run one coroutine for each of these slots, all at the same time."""
        # The loop is made here and not in the constructor, so that it belongs to the process that steps.
        if self._loop is None:
            self._loop = LoopThread("event loop of a shard")
            self._forgotten = weakref.finalize(self, self._loop.end)
            # Not at the interpreter's end, where threads that still work would find a loop that is closed.
            self._forgotten.atexit = False
        try:
            self._loop.run(_run_together(slots.tolist(), coroutines, stop_at_failure))
        except _EndsTheRunError as carried:
            raise carried.error from None


class _EndsTheRunError(Exception):
    """Carries Ctrl-C or sys.exit() of an environment out of the loop, which they would stop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


async def _run_together(
    slots: list[int], coroutines: Iterable[Coroutine[Any, Any, None]], stop_at_failure: bool
) -> None:
    """Run the coroutines at the same time; a failure cancels the others and is raised as a `SlotError`."""
    tasks = [
        asyncio.create_task(_name_slot(slot, coroutine))
        for slot, coroutine in zip(slots, coroutines, strict=True)
    ]
    until = asyncio.FIRST_EXCEPTION if stop_at_failure else asyncio.ALL_COMPLETED
    try:
        await asyncio.wait(tasks, return_when=until)
    finally:
        unfinished = [task for task in tasks if not task.done()]
        await cancel_all(unfinished)
    # If several failed at once, the error of the first slot is raised, whichever came first. The others are
    # read too: the loop warns of errors that nobody has asked for.
    errors = [task.exception() for task in tasks if task not in unfinished]
    first = next((error for error in errors if error is not None), None)
    if first is not None:
        raise first


async def _name_slot(slot: int, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine; whatever it raises becomes a `SlotError` of this slot."""
    try:
        await coroutine
    except SlotError as error:
        error.slot = slot
        raise
    except (KeyboardInterrupt, SystemExit) as error:
        raise _EndsTheRunError(error) from None
    except asyncio.CancelledError as error:
        # We cancel it after another slot has failed. If it cancelled itself, that is a failure of this slot:
        # asyncio.wait does not count a cancellation as an exception.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise SlotError(slot, "it cancelled itself") from error
    except Exception as error:  # third-party code: it may raise anything
        raise SlotError(slot, f"{type(error).__name__}: {error}") from error

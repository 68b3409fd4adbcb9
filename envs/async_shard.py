"""AsyncShard: slots whose environments wait (for a socket, a service, a simulator elsewhere), written as
coroutines.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Shard, SlotError


class AsyncShard(Shard):
    """A shard of which each slot is stepped by a coroutine of its own; the slots of one call wait at the same
    time.

    It works on every backend: elsewhere it brings an event loop of its own, on `backend=asyncio` all slots of
    the run share one. Nothing else may be running a loop in the thread that steps it (in a notebook use
    `backend=asyncio`, whose loop has its own thread). What belongs to a loop (a connection, a lock) must be
    made in a coroutine, not in the constructor. A coroutine that is cancelled ends soon.
    """

    _runner: asyncio.Runner | None = None

    @abstractmethod
    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        """Start an episode of `task` with `seed`: write obs and info of the slot's row (the backend zeroes
        reward and flags).
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
        self._run(
            slots,
            (self.step_slot(slot, action) for slot, action in zip(slots.tolist(), actions, strict=True)),
        )

    def close(self) -> None:
        try:
            slots = np.arange(len(self.rows.reward))
            self._run(slots, (self.close_slot(slot) for slot in slots.tolist()), stop_at_failure=False)
        finally:
            runner, self._runner = self._runner, None
            if runner is not None:
                runner.close()

    def _run(
        self,
        slots: NDArray[np.int64],
        coroutines: Iterable[Coroutine[Any, Any, None]],
        *,
        stop_at_failure: bool = True,
    ) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            self._runner.run(_together(slots.tolist(), coroutines, stop_at_failure))
        finally:
            unfinished = asyncio.all_tasks(self._runner.get_loop())
            if (
                unfinished
            ):  # Ctrl-C and sys.exit() leave the loop at once; nothing of this call may go on in the next one
                self._runner.run(_cancel(unfinished))


async def _together(
    slots: list[int], coroutines: Iterable[Coroutine[Any, Any, None]], stop_at_failure: bool
) -> None:
    """Run them at the same time. The first one to fail (of several, the first slot) is told as a `SlotError`;
    the others are cancelled.
    """
    tasks = [
        asyncio.create_task(_named(slot, coroutine))
        for slot, coroutine in zip(slots, coroutines, strict=True)
    ]
    try:
        await asyncio.wait(
            tasks, return_when=asyncio.FIRST_EXCEPTION if stop_at_failure else asyncio.ALL_COMPLETED
        )
    finally:
        unfinished = [task for task in tasks if not task.done()]
        await _cancel(unfinished)
    for task in tasks:
        if task not in unfinished and (error := task.exception()) is not None:
            raise error


async def _named(slot: int, coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        await coroutine
    except SlotError as error:
        error.slot = slot
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise SlotError(slot, "it cancelled itself") from error  # else the others would never hear of it
    except Exception as error:
        raise SlotError(slot, f"{type(error).__name__}: {error}") from error


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

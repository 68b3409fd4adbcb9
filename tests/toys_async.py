"""Small families whose slots wait, for time to pass or for a test, in coroutines and without."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.async_shard import AsyncShard
from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, Block, Commands, Fault
from envs.base import Rows, Shard, TaskFamily
from envs.layout import Layout
from tests.toys import CountingConfig, CountingFamily, CountingShard

# (where: make_shard, reset, step, stepped, render or close; the step of the episode; the first number of the
# task): may raise, may block, and in a shard of coroutines may return something to wait for
Hook = Callable[[str, int, float], Any]


class AsyncCountingShard(AsyncShard):
    """Counts as CountingShard does, in coroutines that give way in between."""

    def __init__(self, num_slots: int, config: CountingConfig) -> None:
        self.inner = CountingShard(num_slots, config)

    def bind(self, rows: Rows) -> None:
        super().bind(rows)
        self.inner.bind(rows)

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        await asyncio.sleep(0)
        self.inner.reset(np.array([slot]), task[None], np.array([seed], np.uint64))

    async def step_slot(self, slot: int, action: Any) -> None:
        await asyncio.sleep(0)
        self.inner.step(np.array([slot]), np.asarray(action)[None])

    def render(self, slot: int) -> NDArray[np.uint8]:
        return self.inner.render(slot)


class AsyncCountingFamily(CountingFamily):
    """The rows of CountingFamily, from coroutines."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return AsyncCountingShard(num_slots, self.config)


class WaitingShard(Shard):
    """Every slot waits so long at every step, one after the other, and says how often it has."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        time.sleep(self._seconds * len(slots))
        self.rows.info[slots] += 1.0


class AsyncWaitingShard(AsyncShard):
    """Every slot waits so long at every step, all at the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        self.rows.info[slot] = 0.0

    async def step_slot(self, slot: int, action: Any) -> None:
        await asyncio.sleep(self._seconds)
        self.rows.info[slot] += 1.0


class WaitingFamily(CountingFamily):
    """Environments that wait at every step, for benchmarks."""

    def __init__(
        self, seconds: float = 0.01, *, coroutines: bool = False, config: CountingConfig | None = None
    ) -> None:
        super().__init__(config or CountingConfig(falls=False))
        self._seconds, self._coroutines = seconds, coroutines

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return (AsyncWaitingShard if self._coroutines else WaitingShard)(self._seconds)


class HookedShard(CountingShard):
    """Counts, and calls the hook for every slot before it does anything."""

    def __init__(self, num_slots: int, config: CountingConfig, hook: Hook) -> None:
        hook("make_shard", 0, 0.0)
        super().__init__(num_slots, config)
        self._hook = hook

    def _call(self, where: str, slots: NDArray[np.int64]) -> None:
        for slot in slots.tolist():
            self._hook(where, int(self.time[slot]), float(self.tasks[slot, 0]))

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        super().reset(slots, tasks, seeds)
        self._call("reset", slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        self._call("step", slots)
        super().step(slots, actions)
        self._call("stepped", slots)

    def render(self, slot: int) -> NDArray[np.uint8]:
        self._call("render", np.array([slot]))
        return super().render(slot)

    def close(self) -> None:
        self._call("close", np.arange(len(self.time)))


class AsyncHookedShard(AsyncCountingShard):
    """Counts in coroutines and calls the hook, which may return something to wait for."""

    def __init__(self, num_slots: int, config: CountingConfig, hook: Hook) -> None:
        hook("make_shard", 0, 0.0)
        super().__init__(num_slots, config)
        self._hook = hook

    async def _call(self, where: str, slot: int) -> None:
        wait = self._hook(where, int(self.inner.time[slot]), float(self.inner.tasks[slot, 0]))
        if wait is not None:
            await wait

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        await super().reset_slot(slot, task, seed)
        await self._call("reset", slot)

    async def step_slot(self, slot: int, action: Any) -> None:
        await self._call("step", slot)
        await super().step_slot(slot, action)
        await self._call("stepped", slot)

    async def close_slot(self, slot: int) -> None:
        await self._call("close", slot)


class HookedFamily(CountingFamily):
    """Environments that do what a test says, when it says it; they cannot leave its process."""

    def __init__(self, hook: Hook, *, coroutines: bool = False) -> None:
        super().__init__(CountingConfig(falls=False))
        self._hook, self._coroutines = hook, coroutines

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return (AsyncHookedShard if self._coroutines else HookedShard)(num_slots, self.config, self._hook)


@dataclass
class Gate:
    """A place where an environment blocks its thread until the test opens it, as every test must."""

    task_above: float = 0.0
    at: int = 1
    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self, where: str, t: int, task: float) -> None:
        if where == "step" and task > self.task_above and t == self.at:
            self.entered.set()
            self.opened.wait()


def raising(error: BaseException, place: str = "step", *, task_above: float = -1.0, at: int = 1) -> Hook:
    """A hook that raises at one place."""

    def hook(where: str, t: int, task: float) -> None:
        if where == place and task > task_above and (where != "step" or t == at):
            raise error

    return hook


class Driver:
    """A backend of a few slots, commanded by hand: the task of slot i is [i, i]."""

    def __init__(
        self,
        name: str,
        family: TaskFamily,
        num_slots: int,
        *,
        workers: int = 1,
        groups: int = 1,
        **options: Any,
    ) -> None:
        layout, blocks = Layout(family.spec), [Block(lambda: family, 0, num_slots)]
        self.backend = BACKENDS[name](
            blocks, layout, num_workers=workers, num_groups=groups, config=BackendConfig(name=name, **options)
        )
        self.slots = np.arange(num_slots)
        self.commands = Commands.empty(self.backend.rows)
        self.commands.task[:] = self.slots[:, None]
        self.commands.seed[:] = self.slots

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.close()

    def post(self, slots: ArrayLike | None = None, *, reset: bool = False) -> NDArray[np.int64]:
        """Post a reset or a step of these slots (default: all)."""
        chosen = self.slots if slots is None else np.asarray(slots)
        self.commands.reset[chosen] = reset
        self.backend.post(chosen, self.commands)
        return chosen

    def call(
        self, slots: ArrayLike | None = None, *, reset: bool = False, timeout: float = 60.0
    ) -> tuple[list[int], list[Fault]]:
        """Post and wait: (the slots that are ready, the faults)."""
        ready, faults = self.backend.wait(self.post(slots, reset=reset), timeout)
        return ready.tolist(), faults

    def call_late(self, late: list[int], timeout: float = 0.2) -> tuple[list[int], list[Fault]]:
        """Step all slots; only the late ones have a short deadline, so a busy machine makes no other late."""
        self.post()
        others = np.setdiff1d(self.slots, late)
        ready, faults = self.backend.wait(others, 60.0)
        last, more = self.backend.wait(np.array(late), timeout)
        return sorted([*ready.tolist(), *last.tolist()]), faults + more

    def reset(self) -> None:
        """Start all slots; nothing may fail."""
        assert self.call(reset=True) == (self.slots.tolist(), [])

    @property
    def times(self) -> list[float]:
        """The step of its episode that every slot's row is at."""
        return self.backend.rows.info[:, 0].tolist()

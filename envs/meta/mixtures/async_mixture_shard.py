"""The shard of a mixture of services: whatever its slots play, they wait for it at the same time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.meta.mixtures.mixture_shard import PartShards


class AsyncMixtureShard(PartShards, AsyncShard):
    """A mixture in which a part waits for something: all slots wait at the same time, whatever they play.

    The shards of parts that wait live in the loop of this one. Those that compute are stepped in it, slot by
    slot.
    """

    _closed = 0

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        part, own = int(task[0]), np.array([slot])
        self._part[slot] = part
        shard, rows, tasks = self._begun(part, own, task[None])
        if isinstance(shard, AsyncShard):
            await shard.reset_slot(slot, tasks[0], seed)
        else:
            shard.reset(own, tasks, np.array([seed], np.uint64))
        self._copy(part, own, rows)

    async def step_slot(self, slot: int, action: Any) -> None:
        part, own = int(self._part[slot]), np.array([slot])
        actions = self._actions.of_part(part, self._actions.checked(np.asarray(action)[None], own))
        shard, rows = self._made(part)
        if isinstance(shard, AsyncShard):
            await shard.step_slot(slot, actions[0])
        else:
            shard.step(own, actions)
        self._copy(part, own, rows)

    async def close_slot(self, slot: int) -> None:
        """Close it in every part; what has no slots of its own to close is closed with the last one."""
        self._closed += 1
        async with AsyncExitStack() as parts:
            for shard, _ in self._parts.values():
                if isinstance(shard, AsyncShard):
                    parts.push_async_callback(shard.close_slot, slot)
                elif self._closed == self._num_slots:
                    parts.callback(shard.close)

"""The shard of a mixture: any slot plays any part, each part on a shard of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Rows, Shard, TaskFamily
from envs.layout import Layout
from envs.meta.mixtures.shared_spaces import SharedActions, SharedObs


class PartShards(Shard):
    """Slots of a mixture.

    Each part has a shard with as many slots, made when the part is played first, and rows of its own, from
    which the rows of the mixture are copied. So slot i plays in slot i of whichever part its task names.
    """

    def __init__(
        self,
        families: Sequence[TaskFamily],
        num_slots: int,
        threads: int,
        obs: SharedObs,
        actions: SharedActions,
        info_columns: Sequence[NDArray[np.int64]],
    ) -> None:
        self._families, self._num_slots, self._threads = families, num_slots, threads
        self._obs, self._actions, self._info_columns = obs, actions, info_columns
        self._parts: dict[int, tuple[Shard, Rows]] = {}
        # [n] the part that each slot plays.
        self._part = np.zeros(num_slots, np.int64)

    def render(self, slot: int) -> NDArray[np.uint8]:
        return self._made(int(self._part[slot]))[0].render(slot)

    def _made(self, part: int) -> tuple[Shard, Rows]:
        """The shard of a part and its rows, made when it is played first."""
        if part not in self._parts:
            family = self._families[part]
            rows = Layout(family.spec).allocate(self._num_slots)
            shard = family.make_shard(self._num_slots, self._threads)
            shard.first_slot = self.first_slot
            shard.bind(rows)
            self._parts[part] = shard, rows
        return self._parts[part]

    def _begun(
        self, part: int, slots: NDArray[np.int64], tasks: NDArray[np.float64]
    ) -> tuple[Shard, Rows, NDArray[np.float64]]:
        """The shard of a part, its rows, in which these slots begin an episode, and the part's own tasks."""
        shard, rows = self._made(part)
        for array in (rows.reward, rows.terminated, rows.truncated):
            array[slots] = 0
        return shard, rows, tasks[:, 1 : 1 + self._families[part].spec.task_dim]

    def _copy(self, part: int, slots: NDArray[np.int64], rows: Rows) -> None:
        """The rows of these slots, from the part's rows."""
        own = self.rows
        own.reward[slots] = rows.reward[slots]
        own.terminated[slots] = rows.terminated[slots]
        own.truncated[slots] = rows.truncated[slots]
        own.info[slots] = 0
        own.info[slots[:, None], self._info_columns[part]] = rows.info[slots]
        self._obs.write(own.obs, part, slots, rows.obs)


class MixtureShard(PartShards):
    """A mixture whose parts all compute: the slots of a part are stepped together, one part after another."""

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        self._part[slots] = tasks[:, 0]
        for part, chosen in self._by_part(slots):
            own = slots[chosen]
            shard, rows, own_tasks = self._begun(part, own, tasks[chosen])
            shard.reset(own, own_tasks, seeds[chosen])
            self._copy(part, own, rows)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        actions = self._actions.checked(actions, slots)
        for part, chosen in self._by_part(slots):
            shard, rows = self._made(part)
            shard.step(slots[chosen], self._actions.of_part(part, actions[chosen]))
            self._copy(part, slots[chosen], rows)

    def close(self) -> None:
        # Every part is closed, even if closing another one fails.
        with ExitStack() as parts:
            for shard, _ in self._parts.values():
                parts.callback(shard.close)
            self._parts.clear()

    def _by_part(self, slots: NDArray[np.int64]) -> list[tuple[int, NDArray[np.bool_]]]:
        """The parts that these slots play, each with the mask of its slots among them."""
        played = self._part[slots]
        return [(part, played == part) for part in np.unique(played).tolist()]

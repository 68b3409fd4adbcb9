"""A shard host: the shards of some blocks, stepped one after the other; the inside of every backend.

Three numberings of slots meet here. The host's caller counts slots as its rows and commands do. A shard
counts its own slots from 0. `first_slot` is what the manager calls the caller's slot 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import RUN_ENDINGS, Block, Commands, report_of
from envs.base import Rows, Shard, SlotError, arrays_of
from envs.home_process import HomeProcess
from envs.layout import Layout

_log = logging.getLogger(__name__)

FLOAT32_MAX = float(np.finfo(np.float32).max)
# Up to so many numbers BLAS takes the sum of squares in this thread and wakes no other one.
FEW = 4096


class _PlacedShard(NamedTuple):
    """A shard, and the slots start..stop that it steps."""

    start: int
    stop: int
    shard: Shard


class ShardHost:
    """The shards of some blocks: what a serial backend is, and what every worker process and thread holds.

    No reward and no observation that is not finite leaves it: that is a `SlotError`, like any other failure
    of an environment. And only this process leaves it: a fork that an environment makes and that comes back
    is ended.
    """

    def __init__(
        self, blocks: Sequence[Block], layout: Layout, rows: Rows, threads: int = 1, *, first_slot: int = 0
    ) -> None:
        self._first_slot = first_slot
        self._home = HomeProcess()
        with self._home:
            self._placed = [
                _PlacedShard(
                    block.start, block.stop, block.factory().make_shard(block.stop - block.start, threads)
                )
                for block in blocks
            ]
        self._rows = rows
        self._start, self._stop = blocks[0].start, blocks[-1].stop
        own_rows = layout.part(rows, self._start, self._stop)
        float_obs = [array for array in arrays_of(own_rows.obs) if array.dtype.kind == "f"]
        self._checked = [own_rows.reward, *float_obs]
        # From now on each shard writes directly into its part of the rows.
        for start, stop, shard in self._placed:
            shard.first_slot = first_slot + start
            shard.bind(layout.part(rows, start, stop))

    @property
    def shards(self) -> list[Shard]:
        """The shards in the order of their slots."""
        return [placed.shard for placed in self._placed]

    def run(self, slots: NDArray[np.int64], commands: Commands) -> None:
        """Reset or step these slots; a `SlotError` that leaves here counts slots as the caller does."""
        # A post may hold slots that start an episode beside slots that go on.
        resets = commands.reset[slots]
        if resets.any():
            reset_slots = slots[resets]
            self.reset(reset_slots, commands.task[reset_slots], commands.seed[reset_slots])
        if not resets.all():
            stepped_slots = slots[~resets]
            self.step(stepped_slots, commands.action[stepped_slots])

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start an episode of `tasks[i]` with `seeds[i]` in `slots[i]`."""
        # A start row has no reward and ends nothing; the shard itself writes obs and info.
        rows = self._rows
        rows.reward[slots] = 0.0
        rows.terminated[slots] = rows.truncated[slots] = False
        for start, shard, part in self._parts_of(slots):
            try:
                with self._home:
                    shard.reset(slots[part] - start, tasks[part], seeds[part])
            except SlotError as error:
                error.slot += start  # the shard has counted its own slots
                raise
        self.check(slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step those slots only, with `actions[i]` in `slots[i]`."""
        for start, shard, part in self._parts_of(slots):
            try:
                with self._home:
                    shard.step(slots[part] - start, actions[part])
            except SlotError as error:
                error.slot += start
                raise
        self.check(slots)

    def check(self, slots: NDArray[np.int64]) -> None:
        """Raise a `SlotError` if a new row holds a value that is not finite in float32, which agents read.

        An array is tested as a whole: that is cheaper than picking the rows of the slots that were stepped.
        """
        for values in self._checked:
            # NaN compares as false, so it fails the second test as infinity does.
            if _squares_are_finite(values) or (np.abs(values) <= FLOAT32_MAX).all():
                continue
            # Only new rows count: the old row of a slot that was lost may hold anything.
            new_values = values[slots - self._start].reshape(len(slots), -1)
            bad_slots = slots[~(np.abs(new_values) <= FLOAT32_MAX).all(1)]
            if len(bad_slots):
                name = "reward" if values.ndim == 1 else "observation"
                numbers = values[bad_slots[0] - self._start].tolist()
                raise SlotError(int(bad_slots[0]), f"the {name} is not finite (in float32): {numbers}")

    def _parts_of(self, slots: NDArray[np.int64]) -> Iterator[tuple[int, Shard, slice]]:
        """Yield (first slot, shard, its part of `slots`) for every shard that has some of them."""
        # One shard is the usual case, and needs no search and no copy of an index.
        if len(self._placed) == 1:
            yield self._placed[0].start, self._placed[0].shard, slice(None)
            return
        for start, stop, shard in self._placed:
            first, last = np.searchsorted(slots, (start, stop)).tolist()
            if first < last:
                yield start, shard, slice(first, last)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """Draw a picture of one slot."""
        start, _, shard = next(placed for placed in self._placed if placed.start <= slot < placed.stop)
        with self._home:
            return shard.render(slot - start)

    def close(self, passing: type[BaseException] | tuple[type[BaseException], ...] = RUN_ENDINGS) -> None:
        """Close every shard; one that fails is reported and does not keep the others open.

        A caller that no Ctrl-C of the user can reach passes `passing=()`.
        """
        for start, stop, shard in self._placed:
            try:
                with self._home:
                    shard.close()
            except passing:
                raise
            except BaseException as error:  # noqa: BLE001 - the environments are thrown away
                _log.warning(
                    "The environments of slots %d to %d failed to close.\n%s",
                    self._first_slot + start,
                    self._first_slot + stop - 1,
                    report_of(error),
                )
        self._placed.clear()


def _squares_are_finite(values: NDArray[Any]) -> bool:
    """Return whether the sum of squares is below the limit, which implies that every value is.

    It takes a quarter of the time that testing each value takes. A large sum proves nothing.
    """
    return values.size <= FEW and values.itemsize >= 4 and bool(np.vdot(values, values) <= FLOAT32_MAX)

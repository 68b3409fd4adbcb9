"""Observations against the space that their family declares: what lies outside is told, refused or let be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.backends.base import OutOfBounds
from envs.base import Rows, Slots, paired_arrays
from envs.layout import Layout
from envs.manager.recovery import WorkerError

_log = logging.getLogger(__name__)

# The most numbers that a note names of a row.
MAX_NAMED = 3


class _Part(NamedTuple):
    """An array of the observation, [N, ...], and the bounds of its space, of the same shape."""

    name: str
    values: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]


class BoundsCheck:
    """Compares observations, which are finite, with the bounds of their Box.

    A family that leaves its own Box is told once (each factory of a mixture by itself): its rows are stored
    as they are, since nobody else knows what they should have been. Every row is compared: two comparisons
    and two counts of numpy for each array of the observation that has bounds.
    """

    def __init__(self, layout: Layout, rows: Rows, mode: OutOfBounds) -> None:
        self._rows, self._name, self._refuses = rows, layout.spec.name, mode is OutOfBounds.refuse
        self._told: set[int] = set()
        # What the manager adds to an observation is not the family's.
        own, space = layout.part(rows, 0, len(rows.reward)).obs, layout.spec.obs_space
        boxes: Any = space.spaces if isinstance(space, spaces.Dict) else space
        names = [f"obs[{key!r}]" for key in own] if isinstance(own, dict) else ["obs"]
        parts = [
            _Part(name, values, _for_all_slots(box.low, values), _for_all_slots(box.high, values))
            for name, (values, box) in zip(names, paired_arrays(own, boxes), strict=True)
            if not _holds_every_value(box)
        ]
        self._parts = [] if mode is OutOfBounds.ignore else parts

    def any_outside(self, slots: Slots) -> bool:
        """Return whether a row of these slots, which have just arrived, is outside of the bounds."""
        for part in self._parts:
            values = part.values[slots]
            # Arrays of one shape, and no `any`: broadcasting and `any` would each take as long as the rest.
            if np.count_nonzero(values < part.low[slots]) or np.count_nonzero(values > part.high[slots]):
                return True
        return False

    def report(self, slots: Slots, describe: Callable[[int], str]) -> None:
        """Tell of the rows outside, or refuse them; `describe` names a slot's trial and its command."""
        for part in self._parts:
            for slot, found in self._outside(part, slots):
                self._report(slot, f"{describe(slot)} showed {found}")

    def _outside(self, part: _Part, slots: Slots) -> Iterator[tuple[int, str]]:
        """Yield the slots whose rows leave the bounds, and in words which numbers do."""
        for slot in np.arange(len(part.values))[slots].tolist():
            values, low, high = part.values[slot], part.low[slot], part.high[slot]
            indices = np.argwhere((values < low) | (values > high))
            named = [
                f"{part.name}{index.tolist()} = {values[tuple(index)]:g} "
                f"(from {low[tuple(index)]:g} to {high[tuple(index)]:g})"
                for index in indices[:MAX_NAMED]
            ]
            if len(indices) > MAX_NAMED:
                named.append(f"{len(indices) - MAX_NAMED} more numbers")
            if named:
                yield slot, ", ".join(named)

    def _report(self, slot: int, found: str) -> None:
        """Tell of a row outside the bounds, once for each factory; or refuse it."""
        label = int(self._rows.label[slot])
        if label in self._told:
            return
        sentence = f"The environment {self._name} leaves the observation space that it declares: {found}"
        if self._refuses:
            raise WorkerError(f"{sentence}; backend.out_of_bounds=refuse stops here.")
        _log.warning(
            "%s. Its rows are stored as they are, and this is told once; backend.out_of_bounds=refuse stops "
            "instead.",
            sentence,
        )
        self._told.add(label)
        # Nothing is left to be told.
        if self._told.issuperset(self._rows.label.tolist()):
            self._parts = []


def _for_all_slots(bound: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return a bound for every number of these values; where it is the same for all, it takes no memory."""
    if bound.size and (bound == bound.flat[0]).all():
        return np.broadcast_to(bound.flat[0], values.shape)
    return np.broadcast_to(bound, values.shape).copy()


def _holds_every_value(box: spaces.Box) -> bool:
    """Return whether no value of the Box's type can be outside of it."""
    if box.dtype.kind == "f":
        lowest, highest = -np.inf, np.inf
    elif box.dtype.kind in "iu":
        limits = np.iinfo(str(box.dtype))
        lowest, highest = limits.min, limits.max
    else:
        return True
    return bool((box.low <= lowest).all() and (box.high >= highest).all())

"""Which worker steps which slots: from posted slots to the parts of segments that are asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.backends.base import Segment
from envs.backends.workers.handle import WorkerHandle
from envs.base import Slots


class PostedPart(NamedTuple):
    """The posted slots of one segment."""

    worker: WorkerHandle
    # The number of the segment, in the order of the slots.
    number: int
    # The number of the segment as its worker counts its own.
    worker_segment: int
    # Where these slots stand among the posted ones.
    among: slice
    # All slots of the segment, if all of them are posted.
    whole: slice | None


class SegmentRoutes:
    """The segments in the order of their slots, and the worker of each."""

    def __init__(self, segments: Sequence[Segment], workers: Sequence[WorkerHandle]) -> None:
        self._routes = [
            (segment, worker, worker.segments.index(segment))
            for segment in segments
            for worker in workers
            if segment in worker.segments
        ]
        self._edges = np.array([segment.start for segment in segments] + [segments[-1].stop])
        # Nearly every round posts all slots, or all slots of one group: their parts are computed once.
        spans = {(0, segments[-1].stop)}
        for group in {segment.group for segment in segments}:
            own = [segment for segment in segments if segment.group == group]
            spans.add((own[0].start, own[-1].stop))
        self._usual_rounds = {span: self._cut(np.arange(*span)) for span in spans}

    def parts_of(self, slots: NDArray[np.int64], index: Slots) -> Sequence[PostedPart]:
        """Return the parts of these sorted slots; `index` is `slots` or the slice that equals them."""
        usual = self._usual_rounds.get((index.start, index.stop)) if isinstance(index, slice) else None
        return usual or self._cut(slots)

    def _cut(self, slots: NDArray[np.int64]) -> Sequence[PostedPart]:
        # Where each segment begins and ends among the posted slots, which are sorted as the segments are.
        parts: list[PostedPart] = []
        edges = np.searchsorted(slots, self._edges).tolist()
        for number, (first, last) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            if first == last:
                continue
            segment, worker, worker_segment = self._routes[number]
            is_whole = last - first == segment.stop - segment.start
            whole = slice(segment.start, segment.stop) if is_whole else None
            parts.append(PostedPart(worker, number, worker_segment, slice(first, last), whole))
        return parts


def as_slots(slots: NDArray[np.int64]) -> Slots:
    """Return the slice that equals these sorted slots if they are consecutive: it indexes much faster."""
    consecutive = slots[-1] - slots[0] == len(slots) - 1
    return slice(int(slots[0]), int(slots[-1]) + 1) if consecutive else slots

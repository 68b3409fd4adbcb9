"""Posted slots find the segments, and the workers, that step them."""

from __future__ import annotations

import numpy as np
import pytest

from envs.backends.base import Block, segments_of
from envs.backends.workers.handle import WorkerHandle
from envs.backends.workers.routing import PostedPart, SegmentRoutes, as_slots
from envs.backends.workers.transport import SentRows
from envs.layout import Layout
from tests.toys import CountingFamily

NUM_SLOTS = 8


def routes() -> SegmentRoutes:
    """Two workers with a segment of two slots in each of two groups."""
    family = CountingFamily()
    segments = segments_of([Block(lambda: family, 0, NUM_SLOTS)], 2, 2)
    transport = SentRows(Layout(family.spec), NUM_SLOTS)
    of_worker = [[segment for segment in segments if segment.worker == number] for number in (0, 1)]
    handles = [WorkerHandle(number, own, transport) for number, own in enumerate(of_worker)]
    return SegmentRoutes(segments, handles)


def facts(part: PostedPart) -> tuple[int, int, int, slice, slice | None]:
    return part.worker.number, part.number, part.worker_segment, part.among, part.whole


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (
            [0, 1, 2, 3],
            [(0, 0, 0, slice(0, 2), slice(0, 2)), (1, 1, 0, slice(2, 4), slice(2, 4))],
        ),
        (
            [4, 5, 6, 7],
            [(0, 2, 1, slice(0, 2), slice(4, 6)), (1, 3, 1, slice(2, 4), slice(6, 8))],
        ),
        ([1, 6, 7], [(0, 0, 0, slice(0, 1), None), (1, 3, 1, slice(1, 3), slice(6, 8))]),
        ([3], [(1, 1, 0, slice(0, 1), None)]),
    ],
)
def test_slots_are_cut_at_the_segments(slots: list[int], expected: list[tuple[object, ...]]) -> None:
    numbers = np.array(slots)
    assert [facts(part) for part in routes().parts_of(numbers, as_slots(numbers))] == expected


def test_consecutive_slots_are_a_slice() -> None:
    assert as_slots(np.array([2, 3, 4])) == slice(2, 5)
    assert isinstance(as_slots(np.array([2, 4])), np.ndarray)

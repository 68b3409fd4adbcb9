"""Segments: each row is in one band, in the order of time, and half of a band at most is padding."""

from __future__ import annotations

import torch

from policies.memory.segments import Segments


def test_bands_hold_every_row_once_and_segments_keep_their_order() -> None:
    reset = torch.rand(60, 5, generator=torch.Generator().manual_seed(2)) < 0.1
    segments = Segments.of(reset)
    assert segments.length.sum() == 300 and segments.last.sum() == 5
    assert (segments.length.diff() <= 0).all(), "the longest first"
    rows = [list[int]() for _ in segments.length]
    for band in segments.bands():
        for number, (row, inside) in enumerate(zip(band.rows.t(), band.inside.t(), strict=True)):
            rows[number] += row[inside].tolist()
    for number, found in enumerate(rows):
        first = int(segments.start[number] * 5 + segments.column[number])
        assert found == [first + 5 * step for step in range(int(segments.length[number]))]


def test_bands_are_few_and_at_most_half_padding() -> None:
    segments = Segments.of(torch.rand(400, 8, generator=torch.Generator().manual_seed(3)) < 0.05)
    bands = list(segments.bands())
    assert len(bands) <= 8
    assert sum(band.inside.sum() for band in bands) >= 0.5 * sum(band.inside.numel() for band in bands)

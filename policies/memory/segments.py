"""Segments: the rows from one reset to the next, so that a layer that knows no resets can read them all.

    segment   the rows of a column from a reset (or row 0) to the row before the next reset
    band      rows a..b of all segments that are longer than a, side by side: one call of the layer

Bands double in length. So there are few of them, however many segments there are, and at most half of what a
layer reads is beyond the end of a segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Rows of the first band, and of the second.
FIRST = 4


@dataclass(frozen=True)
class Band:
    """Rows [n, S] of the segments that have any there: row a + i of segment s is row rows[i, s] of T B."""

    rows: Tensor
    # [n, S] False beyond the end of a segment, where `rows` repeats its last row.
    inside: Tensor


@dataclass(frozen=True)
class Segments:
    """The segments of `reset` [T, B], the longest first; rows are numbered t B + b."""

    # [S] column, first row and length of each.
    column: Tensor
    start: Tensor
    length: Tensor
    # [S] whether the segment is the last one of its column.
    last: Tensor
    columns: int

    @classmethod
    def of(cls, reset: Tensor) -> Segments:
        """The segments that these resets make."""
        rows, columns = reset.shape
        starts = reset.clone()
        starts[0] = True
        # One column after another, so that a segment ends where the next one starts.
        at = starts.t().flatten().nonzero().squeeze(1)
        length = torch.diff(at, append=at.new_tensor([rows * columns]))
        order = length.argsort(descending=True, stable=True)
        at, length = at[order], length[order]
        return cls(at // rows, at % rows, length, (at + length) % rows == 0, columns)

    def bands(self) -> Iterator[Band]:
        """All rows of all segments, band after band."""
        longest, begin, size = int(self.length[0]), 0, FIRST
        while begin < longest:
            stop = min(begin + size, longest)
            alive = int((self.length > begin).sum())  # the longest come first
            length = self.length[:alive]
            time = torch.arange(begin, stop, device=length.device)[:, None]
            row = self.start[:alive] + torch.minimum(time, length - 1)
            yield Band(row * self.columns + self.column[:alive], time < length)
            begin, size = stop, stop

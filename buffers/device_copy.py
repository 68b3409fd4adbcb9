"""DeviceCopy: the rows of a replay on the device that trains, so that a batch is gathered there, and only the
numbers of its rows are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class DeviceCopy:
    """An image of columns of rows; what it gives are the same bits that the host would have sent."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], device: str, *, starts: int) -> None:
        self._device = device
        self._starts = starts
        """The bit of `flags` that says that an episode starts."""
        self._columns = {
            name: torch.zeros_like(torch.from_numpy(values), device=device)
            for name, values in columns.items()
        }

    def follow(self, columns: Mapping[str, NDArray[Any]], at: NDArray[np.int64]) -> None:
        """The rows numbered `at` have changed."""
        there = torch.from_numpy(at).to(self._device)
        for name, image in self._columns.items():
            image.index_copy_(0, there, torch.from_numpy(columns[name][at]).to(self._device))

    def take(self, at: NDArray[np.int64], valid: NDArray[np.bool_]) -> tuple[dict[str, Tensor], Tensor]:
        """([T, B, ...] of every column, zeros where not `valid`; [T, B, ...] the actions that led there,
        zeros at starts of episodes).
        """
        there = torch.from_numpy(np.concatenate([np.maximum(at[:1] - 1, 0), at])).to(self._device)
        gone = torch.from_numpy(~valid).to(self._device)
        columns = {name: _blank(_rows(image, there[1:]), gone) for name, image in self._columns.items()}
        before = _rows(self._columns["action"], there[:1])
        unled = gone | (columns["flags"] & self._starts > 0)
        return columns, _blank(torch.cat([before, columns["action"][:-1]]), unled)


def _rows(image: Tensor, there: Tensor) -> Tensor:
    return image.index_select(0, there.flatten()).unflatten(0, there.shape)


def _blank(values: Tensor, where: Tensor) -> Tensor:
    return values.masked_fill_(where.view(*where.shape, *[1] * (values.dim() - where.dim())), 0)

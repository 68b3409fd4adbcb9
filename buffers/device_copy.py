"""DeviceCopy: the rows of a replay on the device that trains, so that a batch is gathered there.

Only the numbers of the rows of a batch are sent then, not the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class DeviceCopy:
    """A copy of the stored columns on the training device; it gives the same values as the host."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], device: str) -> None:
        self._device = device
        self._columns = {
            name: torch.zeros_like(torch.from_numpy(values), device=device)
            for name, values in columns.items()
        }

    def update(self, columns: Mapping[str, NDArray[Any]], at: NDArray[np.int64]) -> None:
        """Copy the rows numbered `at` from the host: they have changed."""
        index = torch.from_numpy(at).to(self._device)
        for name, copy in self._columns.items():
            copy.index_copy_(0, index, torch.from_numpy(columns[name][at]).to(self._device))

    def gather(self, names: Iterable[str], at: NDArray[np.int64]) -> dict[str, Tensor]:
        """[T, B, ...] the rows numbered `at` [T, B] of these columns."""
        index = torch.from_numpy(at).to(self._device)
        return {
            name: self._columns[name].index_select(0, index.flatten()).unflatten(0, index.shape)
            for name in names
        }

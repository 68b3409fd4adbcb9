"""StoredRows: the columns in which a buffer stores rows, and the batches that are gathered from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from buffers.base import Batch
from buffers.device_copy import DeviceCopy
from buffers.windows import RowIndex
from envs.base import ActionSpace, ObsSpace, Rows

# Name -> (shape, type) of all that is stored of a row.
Columns = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


class RowFlags:
    """The bits of the byte that stores the five flags of a row, where plain columns would take five bytes."""

    TERMINATED = 1
    TRUNCATED = 2
    EPISODE_START = 4
    TRIAL_START = 8
    TRIAL_END = 16
    ENDED = TERMINATED | TRUNCATED

    @staticmethod
    def pack(rows: Rows) -> NDArray[np.uint8]:
        """[N] the flags of rows, one byte each."""
        # From the highest bit to the lowest: what is packed so far moves up by one bit for each flag.
        flags = rows.trial_end.view(np.uint8)
        for flag in (rows.trial_start, rows.episode_start, rows.truncated, rows.terminated):
            flags = flags * np.uint8(2) + flag.view(np.uint8)
        return flags


class StoredRows:
    """Rows in preallocated columns; memory is touched only as it is first written."""

    def __init__(self, columns: Columns, num_rows: int, *, device: str = "cpu", copied: bool = False) -> None:
        self.columns = {name: np.zeros((num_rows, *shape), dtype) for name, (shape, dtype) in columns.items()}
        self._device = device
        self._copy: DeviceCopy | None = None
        if copied:
            self._copy = DeviceCopy(self.columns, device)

    def write(
        self,
        at: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Mapping[str, NDArray[Any]],
    ) -> None:
        """Row at[i] of storage becomes the row of slot slots[i], with its action and extras."""
        # Columns are flat: a part of an observation or an extra has its kind in its name.
        given = {"action": actions, "reward": rows.reward, "flags": RowFlags.pack(rows)}
        if isinstance(rows.obs, dict):
            given |= {f"obs.{key}": part for key, part in rows.obs.items()}
        else:
            given["obs"] = rows.obs
        given |= {f"extra.{name}": values for name, values in extras.items()}
        for name, stored in self.columns.items():
            if name.startswith("extra.") and name not in given:
                stored[at] = 0  # random actions have no log-probability
            else:
                stored[at] = given[name][slots]

    def put(self, at: NDArray[np.int64], rows: Mapping[str, NDArray[Any]]) -> None:
        """Rows `at` of storage become these, column by column; so they do in the copy on the device."""
        for name, stored in self.columns.items():
            stored[at] = rows[name]
        if self._copy is not None:
            self._copy.update(self.columns, at)

    def batch(self, index: RowIndex) -> Batch:
        """Gather the rows of an index as a batch, with zeros in the rows that are not valid.

        This is the one place that zeroes padding. A NaN in it would reach every gradient, as 0 * NaN.
        """
        at, row_before = index.at, index.before[None]
        if self._copy is not None:
            columns = self._copy.gather(self.columns, at)
            before = self._copy.gather(["action"], row_before)["action"]
        else:
            columns = {name: _taken(values, at) for name, values in self.columns.items()}
            before = _taken(self.columns["action"], row_before)

        device = before.device
        valid, may_train = (torch.from_numpy(rows).to(device) for rows in (index.valid, index.may_train))
        if not index.valid.all():
            for values in columns.values():
                zero_where(values, ~valid)

        # The flags of zeroed rows are all False, so padding neither starts nor ends anything.
        flags = columns["flags"]
        starts = flags & RowFlags.EPISODE_START > 0
        batch = Batch(
            obs=_parts(columns, "obs.") or columns["obs"],
            reward=columns["reward"],
            terminated=flags & RowFlags.TERMINATED > 0,
            truncated=flags & RowFlags.TRUNCATED > 0,
            episode_start=starts,
            trial_start=flags & RowFlags.TRIAL_START > 0,
            trial_end=flags & RowFlags.TRIAL_END > 0,
            valid=valid,
            prev_action=previous_actions(before, columns["action"], starts | ~valid),
            action=columns["action"],
            trains=valid & (flags & RowFlags.ENDED == 0) & may_train,
            extras=_parts(columns, "extra."),
        )
        return batch.to(self._device)


def previous_actions(before: Tensor, actions: Tensor, starts: Tensor) -> Tensor:
    """[T, B, ...] the action that led to each row: the one chosen a row before it.

    `before` [1, B, ...] was chosen before row 0. No action led to the rows of `starts` [T, B], which get 0.
    """
    return zero_where(torch.cat([before, actions[:-1]]), starts)


def zero_where(values: Tensor, rows: Tensor) -> Tensor:
    """Write zeros into the rows of `values` [T, B, ...] that are true in `rows` [T, B]."""
    return values.masked_fill_(rows.view(*rows.shape, *[1] * (values.dim() - rows.dim())), 0)


def columns_of(obs_space: ObsSpace, action_space: ActionSpace, extras: Sequence[str]) -> Columns:
    """The columns of rows of these spaces; an observation that is a dict has a column for each part."""
    columns: Columns = {}
    if isinstance(obs_space, spaces.Dict):
        for key, part in obs_space.spaces.items():
            columns[f"obs.{key}"] = _shape_and_type(part)
    else:
        columns["obs"] = _shape_and_type(obs_space)
    columns["action"] = _shape_and_type(action_space)
    columns["reward"] = ((), np.dtype(np.float32))
    columns["flags"] = ((), np.dtype(np.uint8))
    for name in extras:
        columns[f"extra.{name}"] = ((), np.dtype(np.float32))
    return columns


def bytes_per_row(columns: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> int:
    """Memory of one row in columns of these shapes and types."""
    return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in columns)


def _shape_and_type(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    assert space.shape is not None and space.dtype is not None, f"{space} has no shape"
    return space.shape, np.dtype(space.dtype)


def _taken(values: NDArray[Any], at: NDArray[np.int64]) -> Tensor:
    """[T, B, ...] rows of a column, in memory that torch has aligned."""
    # Products of memory that is aligned otherwise, as numpy's may be, can differ in their last bits.
    rows = torch.from_numpy(values).new_empty((*at.shape, *values.shape[1:]))
    np.take(values, at, axis=0, out=rows.numpy(), mode="clip")  # any other mode would buffer `out`
    return rows


def _parts(columns: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The columns whose names start with this, under the rest of their names."""
    return {name[len(prefix) :]: values for name, values in columns.items() if name.startswith(prefix)}

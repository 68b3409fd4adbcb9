"""TrialStorage: trials that are put into a ring come out of it, with their states, wherever it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from buffers.stored_rows import RowFlags
from buffers.trial_storage import TrialStorage

COLUMNS = {
    "obs": ((2,), np.dtype(np.float32)),
    "action": ((), np.dtype(np.int64)),
    "reward": ((), np.dtype(np.float32)),
    "flags": ((), np.dtype(np.uint8)),
}
STATES = {"hidden": ((3,), np.dtype(np.float32))}
LENGTHS = np.array([4, 0, 5, 2])


def segment(lengths: NDArray[np.int64], every: int) -> dict[str, NDArray[Any]]:
    """Trials whose rows and states are numbered on from 1."""
    rows, states = 1 + np.arange(lengths.sum()), int((np.maximum(lengths - 1, 0) // every).sum())
    return {
        "lengths": lengths,
        "obs": np.stack([rows, -rows], 1).astype(np.float32),
        "action": rows,
        "reward": rows.astype(np.float32),
        "flags": (rows % 2 * RowFlags.TERMINATED).astype(np.uint8),
        "state.hidden": np.tile(np.arange(states)[:, None], 3).astype(np.float32),
    }


@pytest.mark.parametrize("begin", [0, 6, 9, 11])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_what_is_put_is_read_round_the_end_of_the_ring(begin: int, every: int) -> None:
    storage, given = TrialStorage(COLUMNS, 12, states=STATES, state_every=every), segment(LENGTHS, every)
    first = (begin + np.cumsum(LENGTHS) - LENGTHS) % 12
    storage.put(first, LENGTHS, given)
    found = storage.read(first, LENGTHS)
    assert set(found) == set(given)
    for name, values in given.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert storage.ended(first[2:3] + np.arange(5)).tolist() == [True, False, True, False, True]


def test_of_a_segment_the_last_trials_can_be_put() -> None:
    storage = TrialStorage(COLUMNS, 12, states=STATES, state_every=2)
    storage.put(np.array([3]), LENGTHS[-1:], segment(LENGTHS, 2))
    assert storage.read(np.array([3]), LENGTHS[-1:])["action"].tolist() == [10, 11]
    storage.put(np.array([3]), np.array([0]), segment(LENGTHS, 2))
    assert storage.read(np.array([3]), LENGTHS[-1:])["action"].tolist() == [10, 11], "none of them"


@pytest.mark.parametrize("every", [0, 1, 5])
def test_its_bytes_are_known_beforehand_and_states_divide_its_rows(every: int) -> None:
    storage = TrialStorage(COLUMNS, 12, states=STATES, state_every=every)
    assert storage.num_rows == (15 if every == 5 else 12)
    held = sum(values.nbytes for values in storage.rows.columns.values())
    held += sum(values.nbytes for values in storage.states._leaves.values()) if storage.states else 0
    assert TrialStorage.bytes_needed(COLUMNS, 12, states=STATES, state_every=every) == held

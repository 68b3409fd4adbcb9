"""Windows: row numbers of windows and of packed trials, by hand."""

from __future__ import annotations

import numpy as np

from buffers.windows import LOOK_AHEAD, pack, packed_rows, state_rows, trial_rows, window_rows


def test_a_window_holds_its_burn_in_its_training_rows_and_what_targets_look_ahead_to() -> None:
    """Trials of 10 rows; windows of 3 rows from row 4 and, before its trial, from row -1."""
    rows = window_rows(
        np.array([20, 0]),
        np.array([10, 10]),
        np.array([4, -1]),
        3,
        begin=np.array([2, 0]),
        ring=40,
    )
    assert LOOK_AHEAD == 2
    assert rows.before.tolist() == [21, 0]
    assert rows.at[:, 0].tolist() == [22, 23, 24, 25, 26, 27, 28]
    assert rows.may_train[:, 0].tolist() == [False, False, True, True, True, False, False]
    assert rows.valid[:, 0].all()
    assert rows.at[:4, 1].tolist() == [0, 1, 2, 3]
    assert rows.may_train[:4, 1].tolist() == [True, True, False, False]
    assert rows.valid[:, 1].tolist() == 4 * [True] + 3 * [False]


def test_packed_trials_stand_one_after_another_and_every_row_once() -> None:
    rows = packed_rows(np.array([30, 0, 20]), np.array([2, 5, 3]), ring=40)
    assert rows.at.T.tolist() == [[0, 1, 2, 3, 4], [20, 21, 22, 30, 31]]
    assert rows.valid.all() and rows.may_train.all()


def test_rows_count_round_a_ring() -> None:
    """A trial of five rows from row 7 of a ring of 10."""
    first, lengths = np.array([7]), np.array([5])
    assert trial_rows(first, lengths, 10).tolist() == [7, 8, 9, 0, 1]
    assert state_rows(first, lengths, 10, every=2).tolist() == [9, 1]
    assert packed_rows(first, lengths, 10).at[:, 0].tolist() == [7, 8, 9, 0, 1]
    rows = window_rows(first, lengths, np.array([3]), 1, begin=np.array([3]), ring=10)
    assert rows.at[:, 0].tolist() == [0, 1] and rows.before.tolist() == [9]


def test_the_rows_of_trials_that_were_given_up_are_none() -> None:
    first, lengths = np.array([0, 4, 4, 9]), np.array([4, 0, 1, 6])
    assert trial_rows(first, lengths, 20).tolist() == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14]
    assert state_rows(first, lengths, 20, every=3).tolist() == [3, 12]


def test_short_trials_share_columns() -> None:
    lengths = np.array([3, 10, 7, 2, 5, 5])
    column, start = pack(lengths)
    assert (column.tolist(), start.tolist()) == ([1, 0, 1, 3, 2, 2], [7, 0, 0, 0, 0, 5])
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 100, size=300)
    column, start = pack(lengths)
    filled = np.zeros(column.max() + 1, np.int64)
    for trial in np.lexsort((start, column)):
        assert start[trial] == filled[column[trial]], "no row is left out, and none is used twice"
        filled[column[trial]] += lengths[trial]
    assert filled.max() == lengths.max() and filled.sum() > 0.95 * filled.size * filled.max()

"""StoredRows: flags in a byte, previous actions, and padding that is zero whatever stands in storage."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.stored_rows import RowFlags, StoredRows, bytes_per_row, columns_of, previous_actions
from buffers.windows import RowIndex
from envs.base import EnvSpec
from envs.layout import Layout

OBS_SPACE = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTION_SPACE = spaces.Box(-1, 1, (2,), np.float32)
FLAGS = ("terminated", "truncated", "episode_start", "trial_start", "trial_end")


def test_every_combination_of_flags_comes_back_from_its_byte() -> None:
    combinations = np.array(list(product([False, True], repeat=5)))
    rows = Layout(EnvSpec("made up", OBS_SPACE, ACTION_SPACE, task_dim=1)).allocate(32)
    for name, values in zip(FLAGS, combinations.T, strict=True):
        getattr(rows, name)[:] = values
    flags = RowFlags.pack(rows)
    assert flags.dtype == np.uint8 and len(set(flags.tolist())) == 32
    for name, values in zip(FLAGS, combinations.T, strict=True):
        assert (flags & getattr(RowFlags, name.upper()) > 0).tolist() == values.tolist()
    assert ((flags & RowFlags.ENDED > 0) == (rows.terminated | rows.truncated)).all()


def test_a_previous_action_is_that_of_the_row_before_and_zero_at_starts() -> None:
    actions = torch.arange(1.0, 9.0).reshape(4, 2)
    starts = torch.tensor([[True, False], [False, False], [False, True], [False, False]])
    found = previous_actions(torch.tensor([[90.0, 91.0]]), actions, starts)
    assert found.tolist() == [[0, 91], [1, 2], [3, 0], [5, 6]]


@pytest.mark.parametrize("copied", [False, True], ids=["host", "device copy"])
def test_padding_is_zero_whatever_stands_in_storage(copied: bool) -> None:
    stored = StoredRows(columns_of(OBS_SPACE, ACTION_SPACE, ["log_prob"]), 6, copied=copied)
    for values in stored.columns.values():
        values[:] = 7 if values.dtype == np.uint8 else np.nan
    stored.columns["flags"][:] = RowFlags.TRIAL_END
    for name in ("obs", "action", "reward", "extra.log_prob"):
        stored.columns[name][:2] = 1
    stored.put(np.arange(6), {name: values.copy() for name, values in stored.columns.items()})
    valid = np.array([[True], [True], [False], [False]])
    batch = stored.batch(RowIndex(np.array([[0], [1], [4], [5]]), valid, valid, np.array([0])))
    assert isinstance(batch.obs, torch.Tensor)
    for values in (batch.obs, batch.action, batch.reward, batch.extras["log_prob"], batch.trial_end):
        assert (values[:2] == 1).all() and not values[2:].any()
    assert batch.prev_action.tolist() == [[[1, 1]], [[1, 1]], [[0, 0]], [[0, 0]]]
    assert batch.trains.flatten().tolist() == valid.flatten().tolist()


def test_a_dict_of_observations_has_a_column_for_each_part() -> None:
    obs = spaces.Dict({"where": OBS_SPACE, "picture": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
    columns = columns_of(obs, spaces.Discrete(4), ["value"])
    assert set(columns) == {"obs.where", "obs.picture", "action", "reward", "flags", "extra.value"}
    assert bytes_per_row(columns.values()) == 12 + 48 + 8 + 4 + 1 + 4

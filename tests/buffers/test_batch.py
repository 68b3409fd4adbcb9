"""Batch: its rows and columns cut, put side by side and moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from buffers.base import Needs, Sample
from tests.trials import make_replay, make_trials, play


def test_windows_side_by_side_are_the_rows_in_their_order_with_zeros_beyond_the_last() -> None:
    replay = make_replay(capacity=3)
    play(replay, make_trials(0, 3), num_slots=2)
    batch = replay.whole(0, 3)
    window, columns = 4, batch.shape[1]
    cut = batch.side_by_side(window)
    assert isinstance(cut.obs, torch.Tensor) and isinstance(batch.obs, torch.Tensor)
    for index in range(cut.shape[1]):
        first, column = index // columns * window, index % columns
        rows = batch.obs[first : first + window, column]
        assert torch.equal(cut.obs[: len(rows), index], rows) and not cut.valid[len(rows) :, index].any()
        assert not cut.obs[len(rows) :, index].any()


def test_to_moves_every_tensor() -> None:
    replay = make_replay(capacity=1)
    play(replay, make_trials(0, 1), num_slots=1)
    batch = replay.sample(
        Needs(on_policy=False, sample=Sample.trials, batch_size=1), np.random.default_rng(0)
    )
    moved = replace(batch, state={"hidden": torch.zeros(1, 2)}).to("meta")
    assert {
        moved.reward.device.type,
        moved.valid.device.type,
        moved.state["hidden"].device.type if moved.state else "",
    } == {"meta"}

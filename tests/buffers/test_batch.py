"""Batch: what is not valid holds zeros once it is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from buffers.base import Needs, Sample
from tests.trials import make_replay, make_trials, play


def test_without_padding_zeroes_what_is_not_valid_and_nothing_else() -> None:
    replay = make_replay(capacity=6)
    play(replay, make_trials(0, 6, fall=0.4), num_slots=2)
    batch = replay.sample(
        Needs(on_policy=False, sample=Sample.trials, batch_size=16), np.random.default_rng(0)
    )
    assert not batch.valid.all()
    assert isinstance(batch.obs, torch.Tensor)
    wide = ~batch.valid[..., None]
    spoilt = replace(
        batch,
        obs={"a": batch.obs.masked_fill(wide, torch.nan)},
        reward=batch.reward.masked_fill(~batch.valid, torch.nan),
        action=batch.action.masked_fill(wide, 9.0),
        prev_action=batch.prev_action.masked_fill(wide, torch.inf),
    )
    clean = spoilt.without_padding()
    assert isinstance(clean.obs, dict)
    assert torch.equal(clean.obs["a"], batch.obs)
    assert torch.equal(clean.reward, batch.reward)
    assert torch.equal(clean.action, batch.action.masked_fill(wide, 0))
    assert torch.equal(clean.prev_action, batch.prev_action)


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

"""A replay with an image on the device: its batches are those of the host, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from buffers.base import Batch, Needs
from tests.buffers.test_replay import ALL_NEEDS, same
from tests.trials import KINDS, make_replay, make_trials, play


def dtypes(batch: Batch) -> list[torch.dtype]:
    parts = batch.obs if isinstance(batch.obs, dict) else {"obs": batch.obs}
    return [
        part.dtype
        for part in (
            *parts.values(),
            batch.reward,
            batch.action,
            batch.prev_action,
            batch.trains,
            batch.valid,
        )
    ]


@pytest.mark.parametrize(
    "asked", ALL_NEEDS, ids=lambda asked: f"{asked.sample.name}-{asked.window}-{asked.state_every}"
)
def test_batches_are_the_same_while_trials_come_and_go(asked: Needs) -> None:
    trials = make_trials(7, 23)
    host, device = (
        make_replay(capacity=8, state_every=asked.state_every, device_copied=device_copied)
        for device_copied in (False, True)
    )
    rngs = [np.random.default_rng(0) for _ in range(2)]
    for first, stop in ((0, 3), (3, 9), (9, 15), (15, 23)):
        found: list[Batch] = []
        for replay, rng in zip((host, device), rngs, strict=True):
            play(replay, trials[first:stop], num_slots=3)
            found += [replay.sample(asked, rng), replay.whole(first, stop)]
        assert all(
            same(found[i], found[i + 2]) and dtypes(found[i]) == dtypes(found[i + 2]) for i in range(2)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_row_has_an_image(kind: str) -> None:
    found = []
    for device_copied in (False, True):
        replay = make_replay(capacity=4, kind=KINDS[kind], device_copied=device_copied)
        play(replay, make_trials(1, 4), num_slots=2, kind=KINDS[kind])
        found.append(replay.whole(0, 4))
    parts = [batch.obs if isinstance(batch.obs, dict) else {"obs": batch.obs} for batch in found]
    assert all(torch.equal(parts[0][name], parts[1][name]) for name in parts[0])
    assert dtypes(found[0]) == dtypes(found[1]) and torch.equal(found[0].prev_action, found[1].prev_action)


def test_an_interrupted_wave_leaves_no_trace_and_a_resumed_replay_has_its_image() -> None:
    trials, asked = make_trials(3, 9), ALL_NEEDS[0]
    one, again = make_replay(capacity=8, device_copied=True), make_replay(capacity=8, device_copied=True)
    play(one, trials[:6], num_slots=3)
    one.reserve(2)
    one.discard()
    again.restore([one.export(0, 6)])
    assert same(one.sample(asked, np.random.default_rng(2)), again.sample(asked, np.random.default_rng(2)))

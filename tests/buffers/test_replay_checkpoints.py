"""Replay: exported segments put back give the same samples, and what is gone is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from buffers.base import Needs, Sample
from tests.buffers.test_replay import every_need, needs, same, those_that_fit
from tests.trials import make_replay, make_trials, play


@every_need
def test_restored_segments_give_the_same_samples_bit_for_bit(asked: Needs) -> None:
    trials, replay, segments = make_trials(5, 23), make_replay(capacity=8, state_every=asked.state_every), []
    for first, stop in ((0, 6), (6, 9), (9, 15), (15, 23)):
        play(replay, trials[first:stop], num_slots=3)
        segments.append(replay.export(first, stop))
    assert 9 <= replay.oldest < 15
    for oldest in (0, 1, 2):  # segments that have been overwritten may be there or not
        restored = make_replay(capacity=8, state_every=asked.state_every)
        restored.restore(segments[oldest:])
        assert (restored.num_added, restored.num_transitions) == (replay.num_added, replay.num_transitions)
        for seed in range(3):
            assert same(
                replay.sample(asked, np.random.default_rng(seed)),
                restored.sample(asked, np.random.default_rng(seed)),
            )
    assert not same(
        replay.sample(asked, np.random.default_rng(0)), replay.sample(asked, np.random.default_rng(1))
    )
    partly = make_replay(capacity=8, state_every=asked.state_every)
    partly.restore(segments[:-1])
    assert not same(
        replay.sample(asked, np.random.default_rng(0)), partly.sample(asked, np.random.default_rng(0))
    )


def test_export_of_trials_that_are_gone_is_refused() -> None:
    replay = make_replay(capacity=4)
    play(replay, make_trials(0, 4), num_slots=2)
    play(replay, make_trials(0, 2, first=4), num_slots=2)
    with pytest.raises(ValueError, match="not all here"):
        replay.export(1, 6)
    assert replay.export(2, 6)["lengths"].shape == (4,)


def test_a_segment_larger_than_the_ring_keeps_its_newest_trials() -> None:
    large, small, trials = make_replay(capacity=8), make_replay(capacity=3), make_trials(0, 8)
    play(large, trials, num_slots=2)
    small.restore([large.export(0, 8)])
    assert 0 < small.num_trials == those_that_fit(trials, 3 * 12) < 8
    batch = small.sample(needs(Sample.trials), np.random.default_rng(0))
    assert isinstance(batch.obs, torch.Tensor)
    assert set(batch.obs[0, :, 0].int().tolist()) == set(range(small.oldest, 8))

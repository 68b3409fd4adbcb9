"""A wave of a learner: what it draws, and what follows from it."""

from __future__ import annotations

import pytest

from buffers.rollout import RolloutBuffer
from policies.collection.collector import play, take_in
from policies.learner import Learner
from policies.run.setup import wave_shape
from tests.runs import digest, state_of, tiny_config


def test_a_wave_kept_apart_and_then_taken_in_is_the_wave() -> None:
    """With a ring that it wraps around, and a normalisation that it changes."""
    config = tiny_config(
        train={"buffer_size": 12 * 5}, agent={"normalise_obs": True, "normalise_reward": True}
    )
    found = []
    for apart in (False, True):
        with Learner(config) as learner:
            for _ in range(2):
                if not apart:
                    learner.collect(4, False, None)
                    continue
                first, before = learner.buffer.num_added, state_of(learner)
                wave = RolloutBuffer(**wave_shape(config, learner.family))
                wave.num_added = first
                result = play(learner, 4, learner.agent, learner.env, wave, tick=lambda _: False)
                assert state_of(learner) == before
                learner.buffer.restore([wave.export(first, wave.num_added)], first)
                take_in(learner, result, first=first, warmup=False)
            assert learner.buffer.num_trials == 5 and learner.buffer.num_added == 8
            batch = learner.buffer.sample(learner.needs, learner._sampling)
            found.append((state_of(learner), digest([batch.obs, batch.prev_action, batch.trains])))
    assert found[0] == found[1]


def test_no_trials_are_no_wave() -> None:
    with Learner(tiny_config()) as learner:
        before = state_of(learner)
        assert learner.collect(0, False, None).env_steps == 0
        with pytest.raises(ValueError, match="-1 trials cannot be collected"):
            learner.collect_rollouts_parallel(-1)
        assert state_of(learner) == before

"""A wave of a learner: what it draws, and what follows from it."""

from __future__ import annotations

import pytest

from buffers.rollout import RolloutBuffer
from policies.collection.collector import LocalCollector, account_for
from policies.learner import Learner
from tests.runs import digest, state_of, tiny_config


def test_a_wave_kept_apart_and_then_taken_in_is_the_wave() -> None:
    """With a ring that it wraps around, and a normalisation that it changes."""
    config = tiny_config(
        train={"buffer_size": 14 * 5}, agent={"normalise_obs": True, "normalise_reward": True}
    )
    found = []
    for apart in (False, True):
        with Learner(config) as learner:
            for _ in range(2):
                if not apart:
                    learner.collect_wave(4)
                    continue
                first, before = learner.buffer.num_added, state_of(learner)
                wave = RolloutBuffer(**learner.context.sizes.wave_shape)
                wave.num_added = first
                env, context, progress = learner.environments.training, learner.context, learner.progress
                result = LocalCollector(
                    context, progress, env, learner.agent, wave, learner.watch, lambda _: False
                ).collect(4)
                assert state_of(learner) == before
                learner.buffer.extend(wave.export(first, wave.num_added))
                account_for(result, context, learner.parts, progress, first=first, warmup=False)
            assert learner.buffer.num_trials == 5 and learner.buffer.num_added == 8
            batch = learner.buffer.sample(learner.context.needs, learner._sampling)
            found.append((state_of(learner), digest([batch.obs, batch.prev_action, batch.trains])))
    assert found[0] == found[1]


def test_no_trials_are_no_wave() -> None:
    with Learner(tiny_config()) as learner:
        before = state_of(learner)
        assert learner.collect_wave(0).env_steps == 0
        with pytest.raises(ValueError, match="-1 trials cannot be collected"):
            learner.collect_rollouts_parallel(-1)
        assert state_of(learner) == before

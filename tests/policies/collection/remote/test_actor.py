"""CollectingActor: an order decides all of its wave, which travels as plain arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.collection.remote.actor import CollectingActor, PlayedWave, WaveOrder
from policies.learner import Learner
from tests.actors import config_with_actors
from tests.runs import digest


@pytest.fixture(params=["SAC", "PPO"])
def learner(request: pytest.FixtureRequest) -> Learner:
    return Learner(replace(config_with_actors(request.param), collector=config_with_actors().collector))


def order_of(learner: Learner, first: int, *, random: bool = False) -> WaveOrder:
    return WaveOrder(learner.agent.state_dict(), {}, first, 4, None, random)


def test_an_order_decides_all_of_its_wave(learner: Learner) -> None:
    one, other = (CollectingActor(learner.config, 2) for _ in range(2))
    wanted = digest(vars(one.play(order_of(learner, 7)))["segment"])
    # What it has played before leaves no trace, nor do other weights.
    changed = {name: value * 0.5 for name, value in learner.agent.state_dict().items()}
    other.play(replace(order_of(learner, 0), weights=changed))
    other.play(order_of(learner, 3, random=True))
    again = other.play(order_of(learner, 7))
    assert digest(again.segment) == wanted
    assert digest(other.play(order_of(learner, 8)).segment) != wanted, "another number is another trial"
    one.close()
    other.close()
    learner.close()


def test_a_wave_travels_as_plain_arrays_and_joins_in_the_order_of_the_actors(learner: Learner) -> None:
    actor = CollectingActor(learner.config, 2)
    waves = [actor.play(order_of(learner, first)) for first in (0, 4)]
    read = [PlayedWave.from_bytes(wave.to_bytes()) for wave in waves]
    for wave, copy in zip(waves, read, strict=True):
        assert digest(vars(copy.result)) == digest(vars(wave.result))
        assert digest(copy.segment) == digest(wave.segment)
    whole = PlayedWave.joined(read, first=11)
    assert whole.segment["first"].tolist() == [11] and len(whole.segment["lengths"]) == 8
    assert whole.result.env_steps == sum(wave.result.env_steps for wave in waves)
    np.testing.assert_array_equal(whole.result.returns[4:], waves[1].result.returns)
    actor.close()
    learner.close()

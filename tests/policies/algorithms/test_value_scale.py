"""Values in units of their own: deviations of recent returns from their mean."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
import torch

from policies.algorithms.value_scale import ValueScale
from policies.returns import advantages
from tests.policies.algorithms.test_ppo import batch_of, make, parameters


def test_a_normalised_value_counts_in_deviations_of_the_returns() -> None:
    """After units of mean 5 and deviation 3: advantages are those of V = 3 v + 5, and targets of the loss are
    counted in the new units.
    """
    ppo, batch = make(normalise_value=True), batch_of()
    scale = ppo.value_scale
    assert scale is not None
    scale.weight, scale.mean, scale.square = 1.0, 5.0, 34.0
    with torch.no_grad():
        value = 3.0 * ppo.agent.critic.head(ppo.agent.unroll(batch).critic) + 5.0
        advantage = advantages(batch, value, discount=0.97, gae_lambda=0.9, whole_trial=True)
        found, trains = ppo._with_targets(batch).extras, batch.trains
    target = (advantage + value)[trains]
    mean, square = 0.9 * 5.0 + 0.1 * target.mean(), 0.9 * 34.0 + 0.1 * target.square().mean()
    deviation = (square - mean.square()).sqrt()
    assert (scale.mean, scale.deviation) == (pytest.approx(mean.item()), pytest.approx(deviation.item()))
    torch.testing.assert_close(found["target"][trains], (target - mean) / deviation, rtol=1e-4, atol=1e-5)
    # The clip of values holds what the head has said, which is v.
    torch.testing.assert_close(found["value"][trains], (value[trains] - 5.0) / 3.0, rtol=1e-4, atol=1e-5)
    normal = (advantage[trains] - advantage[trains].mean()) / advantage[trains].std(correction=0)
    torch.testing.assert_close(found["advantage"][trains], normal, rtol=1e-4, atol=1e-4)


def test_the_first_returns_make_the_units_and_their_size_is_nothing_to_the_loss() -> None:
    ppo, batch = make(normalise_value=True, epochs=1, minibatches=1), batch_of()
    huge = replace(batch, reward=1e4 * batch.reward)
    target = ppo._with_targets(ppo.agent.normalise(huge)).extras["target"][batch.trains]
    assert target.mean().item() == pytest.approx(0.0, abs=1e-4) and target.std(
        correction=0
    ).item() == pytest.approx(1.0, abs=1e-3)
    assert ppo.value_scale is not None and ppo.value_scale.deviation > 1e3


def test_returns_that_are_all_the_same_divide_by_no_zero() -> None:
    scale = ValueScale()
    scale.update(torch.full((5,), 7.0))
    assert scale.from_returns(torch.tensor(7.0)).item() == pytest.approx(0.0) and math.isfinite(
        scale.from_returns(torch.tensor(8.0)).item()
    )
    assert scale.to_returns(scale.from_returns(torch.tensor(8.0))).item() == pytest.approx(8.0)


def test_the_units_go_through_a_file() -> None:
    ppo, other, batch = make(normalise_value=True), make(normalise_value=True), batch_of()
    ppo.update(batch)
    file = io.BytesIO()
    torch.save(ppo.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for one in (ppo, other):
        one.update(batch_of(seed=5))
    assert all(torch.equal(*pair) for pair in zip(parameters(ppo), parameters(other), strict=True))

"""Distributions against torch's own, and where theirs break: saturation, and masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical as Reference
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from policies.agents.actions import Choices, SeveralChoices
from policies.agents.distributions import (
    Categorical,
    EpsilonGreedy,
    Gaussian,
    IndependentChoices,
    Noisy,
    TanhGaussian,
)


def make(scale: float = 1.0) -> tuple[TanhGaussian, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = (torch.randn(50, 3, generator=generator) for _ in range(3))
    return TanhGaussian(scale * mean, 0.5 * log_std), noise


def test_log_prob_equals_that_of_torch_distributions() -> None:
    policy, noise = make()
    reference = TransformedDistribution(
        Independent(Normal(policy.mean, policy.log_std.exp()), 1), [TanhTransform()]
    )
    action, log_prob = policy.sample_with_log_prob(noise)
    torch.testing.assert_close(action, policy.sample(noise))
    torch.testing.assert_close(log_prob, reference.log_prob(action), rtol=1e-3, atol=1e-3)
    inner = action.abs().amax(-1) < 0.99
    assert inner.any()
    torch.testing.assert_close(policy.log_prob(action)[inner], log_prob[inner], rtol=1e-4, atol=1e-4)
    assert (policy.log_prob(action * 0.9) - log_prob).abs().max() > 0.1


def test_log_prob_and_its_gradient_are_finite_where_tanh_has_saturated() -> None:
    policy, noise = make(scale=100.0)
    policy.mean.requires_grad_()
    action, log_prob = policy.sample_with_log_prob(noise)
    assert (action.abs() == 1).any()
    log_prob.sum().backward()
    assert policy.mean.grad is not None
    assert policy.mean.grad.isfinite().all()
    assert policy.log_prob(action).isfinite().all()


def test_the_mode_is_the_sample_without_noise() -> None:
    policy, noise = make()
    torch.testing.assert_close(policy.mode(), policy.sample(0 * noise))
    choice = Categorical(torch.tensor([0.1, 2.0, -1.0]), start=5)
    assert choice.mode().item() == choice.sample(torch.zeros(3)).item() == 6


LOGITS = torch.tensor([0.5, -1.0, 2.0, 0.0])
MASK = torch.tensor([1, 1, 0, 1], dtype=torch.int8)


def frequencies(policy: Categorical, start: int) -> torch.Tensor:
    """How often each action is drawn, with the noise that an agent would have."""
    noise = Choices(spaces.Discrete(4)).draw_noise(np.random.default_rng(0), 40_000)
    return torch.bincount(policy.sample(torch.from_numpy(noise)) - start, minlength=4) / len(noise)


def test_choices_are_drawn_with_the_probabilities_of_the_softmax() -> None:
    for mask, allowed in ((None, torch.ones(4)), (MASK, MASK.float())):
        policy = Categorical(LOGITS, 5, mask)
        expected = LOGITS.exp() * allowed / (LOGITS.exp() * allowed).sum()
        torch.testing.assert_close(policy.log_probs.exp(), expected)
        assert (frequencies(policy, 5) - expected).abs().max() < 4 * 0.5 / 200
        assert torch.equal(frequencies(policy, 5) == 0, allowed == 0)


def test_log_probs_and_highest_entropies_of_choices() -> None:
    torch.testing.assert_close(Categorical(LOGITS).log_probs, Reference(logits=LOGITS).logits)
    policy = Categorical(LOGITS.expand(2, 3, 4), 5)
    action = torch.tensor([[5, 6, 7], [8, 8, 0]])
    assert policy.log_prob(action).shape == (2, 3)
    torch.testing.assert_close(policy.log_prob(action)[0], policy.log_probs[0, 0, :3])
    assert policy.log_prob(action).isfinite().all(), "padding holds no action"
    torch.testing.assert_close(policy.highest_entropy(), torch.full((2, 3), math.log(4)))
    torch.testing.assert_close(Categorical(LOGITS, 0, MASK).highest_entropy(), torch.tensor(math.log(3)))


def test_a_mask_leaves_everything_finite_with_its_gradient() -> None:
    logits = (100 * LOGITS).requires_grad_()
    policy = Categorical(logits, 0, MASK)
    entropy = -(policy.log_probs.exp() * policy.log_probs).sum()
    entropy.backward()
    assert entropy.isfinite() and logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[2] == 0


def test_a_mask_that_allows_nothing_forbids_nothing() -> None:
    torch.testing.assert_close(
        Categorical(LOGITS, 0, torch.zeros(4)).log_probs, Categorical(LOGITS).log_probs
    )


def test_a_noisy_action_is_the_action_plus_noise_within_the_bounds() -> None:
    policy = Noisy(torch.tensor([[0.5, -0.9]]), 0.2)
    noise = torch.tensor([[1.0, -3.0]])
    torch.testing.assert_close(policy.sample(noise), torch.tensor([[0.7, -1.0]]))
    assert torch.equal(policy.mode(), torch.tensor([[0.5, -0.9]]))
    action = torch.tensor([[0.6, -0.5]])
    torch.testing.assert_close(policy.log_prob(action), Normal(policy.action, 0.2).log_prob(action).sum(-1))


def test_epsilon_greedy_prefers_the_highest_value_and_else_all_that_is_allowed_alike() -> None:
    for mask, best, allowed in ((None, 2, torch.ones(4)), (MASK, 0, MASK.float())):
        for epsilon in (0.0, 0.4, 1.0):
            policy = EpsilonGreedy(LOGITS, torch.tensor(epsilon), 5, mask)
            expected = epsilon * allowed / allowed.sum()
            expected[best] += 1 - epsilon
            torch.testing.assert_close(policy.log_probs.exp(), expected)
            torch.testing.assert_close(frequencies(policy, 5), expected, rtol=0, atol=4 * 0.5 / 200)
            assert torch.equal(frequencies(policy, 5) == 0, expected == 0)
            assert policy.mode().item() == best + 5
            assert policy.log_prob(torch.tensor(best + 5)).item() == pytest.approx(
                math.log(expected[best]), abs=1e-5
            )
    anything = EpsilonGreedy(LOGITS, torch.tensor(1.0), 0, torch.zeros(4))
    torch.testing.assert_close(anything.log_probs.exp(), torch.full((4,), 0.25))


def test_a_gaussian_is_that_of_torch_distributions_and_is_not_squashed() -> None:
    squashed, noise = make(scale=3.0)
    for log_std in (squashed.log_std, squashed.log_std[0]):
        policy = Gaussian(squashed.mean, log_std)
        reference = Independent(Normal(policy.mean, log_std.exp().expand_as(policy.mean)), 1)
        action = policy.sample(noise)
        assert (action.abs() > 1).any()
        torch.testing.assert_close(action, policy.mean + log_std.exp() * noise)
        torch.testing.assert_close(policy.log_prob(action), reference.log_prob(action))
        torch.testing.assert_close(policy.entropy().expand(50), reference.entropy())
        assert torch.equal(policy.mode(), squashed.mean)


def test_the_entropy_of_choices_counts_those_that_are_allowed() -> None:
    torch.testing.assert_close(Categorical(LOGITS).entropy(), Reference(logits=LOGITS).entropy())
    torch.testing.assert_close(
        Categorical(LOGITS, 0, MASK).entropy(), Reference(logits=LOGITS[MASK != 0]).entropy()
    )


def several(mask: torch.Tensor | None = None) -> IndependentChoices:
    """A choice of three and one of four, the second with the logits of above."""
    logits = torch.cat([torch.tensor([0.0, 1.0, -0.5]), LOGITS]).expand(5, 7)
    return SeveralChoices(spaces.MultiDiscrete([3, 4])).distribution(logits, mask)


def test_several_choices_have_the_sums_of_their_log_probs_and_entropies() -> None:
    policy = several()
    first, second = Reference(logits=torch.tensor([0.0, 1.0, -0.5])), Reference(logits=LOGITS)
    action = torch.tensor([[0, 3], [2, 1], [1, 0], [1, 1], [2, 2]])
    expected = first.log_prob(action[:, 0]) + second.log_prob(action[:, 1])
    torch.testing.assert_close(policy.log_prob(action), expected)
    torch.testing.assert_close(policy.entropy(), (first.entropy() + second.entropy()).expand(5))
    assert policy.mode().tolist() == [[1, 2]] * 5


def test_the_parts_of_a_mask_belong_to_the_choices_in_their_order() -> None:
    mask = torch.tensor([0, 0, 1, *MASK.tolist()]).expand(5, 7)
    policy = several(mask)
    torch.testing.assert_close(policy.entropy(), Categorical(LOGITS, 0, MASK).entropy().expand(5))
    torch.testing.assert_close(
        policy.log_prob(torch.tensor([2, 0]).expand(5, 2)),
        Categorical(LOGITS, 0, MASK).log_probs[:1].expand(5),
    )
    assert policy.mode().tolist() == [[2, 0]] * 5
    # The choices of one seat being all forbidden, as where it is dead, forbids nothing to it alone.
    nothing = several(torch.tensor([0, 0, 0, *MASK.tolist()]).expand(5, 7))
    assert nothing.mode().tolist() == [[1, 0]] * 5


def test_several_choices_are_drawn_independently_with_the_probabilities_of_their_softmax() -> None:
    actions = SeveralChoices(spaces.MultiDiscrete([3, 4]))
    noise = torch.from_numpy(actions.draw_noise(np.random.default_rng(0), 40_000))
    drawn = actions.distribution(torch.cat([torch.tensor([0.0, 1.0, -0.5]), LOGITS]), None).sample(noise)
    assert drawn.shape == (40_000, 2) and drawn.dtype == torch.int64
    together = torch.bincount(drawn[:, 0] * 4 + drawn[:, 1], minlength=12).reshape(3, 4) / len(drawn)
    expected = torch.outer(torch.tensor([0.0, 1.0, -0.5]).softmax(0), LOGITS.softmax(0))
    assert (together - expected).abs().max() < 4 * 0.5 / 200

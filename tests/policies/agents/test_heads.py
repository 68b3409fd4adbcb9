"""The tanh-Gaussian against torch's own composition of distributions."""

from __future__ import annotations

import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from policies.agents.heads import HeadSizes, PolicyHead, TanhGaussian, TwinQHead


def make(scale: float = 1.0) -> tuple[TanhGaussian, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = (torch.randn(50, 3, generator=generator) for _ in range(3))
    return TanhGaussian(scale * mean, 0.5 * log_std), noise


def test_log_prob_equals_that_of_torch_distributions() -> None:
    policy, noise = make()
    reference = TransformedDistribution(Independent(Normal(policy.mean, policy.log_std.exp()), 1), [TanhTransform()])
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


def test_a_head_without_shortcut_still_reads_the_action_but_not_the_observation() -> None:
    sizes = HeadSizes(features=5, obs=3, action=2, shortcut=0, hidden=[8])
    features, obs, action = torch.randn(4, 5), torch.randn(4, 3), torch.randn(4, 2)
    q = TwinQHead(sizes)
    assert q(features, obs, action).shape == (2, 4)
    assert torch.equal(q(features, obs, action), q(features, obs + 1, action))
    assert not torch.equal(q(features, obs, action), q(features, obs, action + 1))
    policy = PolicyHead(sizes)
    assert torch.equal(policy(features, obs).mean, policy(features, obs + 1).mean)
    assert not torch.equal(policy(features, obs).mean, policy(features + 1, obs).mean)

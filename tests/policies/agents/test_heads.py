"""Heads: which of features, current observation and action they read."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from policies.agents.actions import Choices, actions_of
from policies.agents.base import Features
from policies.agents.heads import (
    DeterministicHead,
    EpsilonGreedyHead,
    GaussianHead,
    HeadSizes,
    PolicyHead,
    QHead,
    QOfChoicesHead,
    ValueHead,
)
from policies.nn.mlp import MLP, Activation
from tests.trials import ACTION_SPACE


def test_a_head_without_shortcut_still_reads_the_action_but_not_the_observation() -> None:
    sizes = HeadSizes(context=5, obs=3, action=2, shortcut=0, hidden=[8])
    features, obs, action = torch.randn(4, 5), torch.randn(4, 3), torch.randn(4, 2)
    seen, elsewhere, otherwise = (
        Features(features, obs),
        Features(features, obs + 1),
        Features(features + 1, obs),
    )
    q = QHead(sizes)
    assert q(seen, action).shape == (2, 4)
    assert torch.equal(q(seen, action), q(elsewhere, action))
    assert not torch.equal(q(seen, action), q(seen, action + 1))
    policy = PolicyHead(sizes, actions_of(ACTION_SPACE))
    assert torch.equal(policy(seen).mean, policy(elsewhere).mean)
    assert not torch.equal(policy(seen).mean, policy(otherwise).mean)


@pytest.mark.parametrize("critics", [1, 2, 5])
def test_an_ensemble_has_so_many_estimates_each_of_its_own(critics: int) -> None:
    sizes = HeadSizes(context=5, obs=3, action=4, shortcut=6, hidden=[8])
    seen = Features(torch.randn(7, 5), torch.randn(7, 3))
    of_choices, q = QOfChoicesHead(sizes, critics)(seen), QHead(sizes, critics)(seen, torch.randn(7, 4))
    assert of_choices.shape == (critics, 7, 4) and q.shape == (critics, 7)
    assert of_choices.std(-1).min() > 0
    for values in (of_choices, q):
        assert len({round(one, 6) for one in values.flatten(1)[:, 0].tolist()}) == critics


def test_a_deterministic_head_answers_within_the_bounds() -> None:
    sizes = HeadSizes(context=5, obs=3, action=2, shortcut=6, hidden=[8])
    policy = DeterministicHead(sizes, actions_of(ACTION_SPACE), deviation=0.3)(
        Features(100 * torch.randn(7, 5), torch.randn(7, 3))
    )
    assert policy.mode().shape == (7, 2) and policy.mode().abs().max() <= 1
    torch.testing.assert_close(policy.sample(torch.ones(7, 2)), (policy.mode() + 0.3).clamp(max=1))


def test_an_epsilon_greedy_head_prefers_the_highest_mean_and_adds_no_parameters() -> None:
    sizes = HeadSizes(context=5, obs=3, action=3, shortcut=6, hidden=[8])
    critic, choices = QOfChoicesHead(sizes, 3), actions_of(spaces.Discrete(3, start=5))
    assert isinstance(choices, Choices)
    head = EpsilonGreedyHead(critic, choices)
    seen = Features(torch.randn(7, 5), torch.randn(7, 3))
    assert torch.equal(head(seen).mode(), critic(seen).mean(0).argmax(-1) + 5)
    assert [id(one) for one in head.parameters()] == [id(one) for one in critic.parameters()]
    head.epsilon.fill_(1.0)
    torch.testing.assert_close(head(seen).log_probs.exp(), torch.full((7, 3), 1 / 3))
    assert head.state_dict()["epsilon"] == 1.0


def test_a_gaussian_head_has_one_deviation_for_all_rows_and_a_first_mean_that_hardly_depends_on_them() -> (
    None
):
    sizes = HeadSizes(context=5, obs=3, action=2, shortcut=6, hidden=[8])
    policy = GaussianHead(sizes, 0.5)(Features(torch.randn(700, 5), torch.randn(700, 3)))
    assert policy.mean.shape == (700, 2) and 0 < policy.mean.abs().max() < 0.2
    torch.testing.assert_close(policy.log_std.exp(), torch.full((2,), 0.5))
    first = PolicyHead(sizes, actions_of(spaces.Discrete(4)), last_gain=0.01)(
        Features(torch.randn(700, 5), torch.randn(700, 3))
    )
    assert (first.log_probs.exp() - 0.25).abs().max() < 0.05  # pyright: ignore[reportAttributeAccessIssue]


def test_a_value_head_gives_one_number_for_each_row() -> None:
    sizes = HeadSizes(context=0, obs=3, action=2, shortcut=6, hidden=[8, 8])
    assert ValueHead(sizes)(Features(torch.zeros(4, 7, 0), torch.randn(4, 7, 3))).shape == (4, 7)


@pytest.mark.parametrize("activation", Activation)
def test_every_head_hands_its_activation_to_its_networks(activation: Activation) -> None:
    sizes = HeadSizes(context=5, obs=3, action=2, shortcut=6, hidden=[8], activation=activation)
    actions = actions_of(ACTION_SPACE)
    heads = [
        PolicyHead(sizes, actions),
        DeterministicHead(sizes, actions),
        GaussianHead(sizes),
        ValueHead(sizes),
        QHead(sizes),
        QOfChoicesHead(sizes),
    ]
    nets = [part for head in heads for part in head.modules() if isinstance(part, MLP)]
    assert len(nets) == 8 and all(part.activation is activation for part in nets)


def test_a_critic_that_reads_the_action_may_have_a_wider_shortcut_than_the_others() -> None:
    sizes = HeadSizes(context=5, obs=3, action=2, shortcut=6, hidden=[8], action_shortcut=11)
    embeddings = [head.embed[0] for head in (QHead(sizes), ValueHead(sizes))]
    assert [(one.in_features, one.out_features) for one in embeddings] == [(5, 11), (3, 6)]  # pyright: ignore


@pytest.mark.parametrize("layer_norm", [False, True])
def test_layer_norm_makes_a_critic_forget_the_size_of_what_its_hidden_layers_are_given(
    layer_norm: bool,
) -> None:
    """With biases of 0, rows a hundred times as large give the same estimates."""
    sizes = HeadSizes(context=0, obs=3, action=2, shortcut=0, hidden=[16, 16])
    head = QHead(sizes, 2, layer_norm=layer_norm)
    for name, parameter in head.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    obs, action = torch.randn(7, 3), torch.randn(7, 2)
    found = [head(Features(obs.new_zeros(7, 0), size * obs), size * action) for size in (1.0, 100.0)]
    assert torch.allclose(*found, rtol=1e-2, atol=1e-3) == layer_norm

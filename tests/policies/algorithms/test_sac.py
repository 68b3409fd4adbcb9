"""SAC: the value that it samples, and the hill that its actor climbs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.agents.agent import Agent
from policies.agents.base import Arch, Features, select_rows
from policies.agents.heads import HeadSizes
from policies.algorithms.sac import SAC, SACConfig
from policies.algorithms.transitions import HeadOnRows
from tests.policies.algorithms.test_off_policy import batch_for
from tests.trials import make_spec


class Hill(nn.Module):
    """Q = shift - 10 |a - 0.5|^2 at every row."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, seen: Features, action: Tensor) -> Tensor:
        return (self.shift - 10.0 * (action - 0.5).square().sum(-1)).expand(2, -1)


def test_the_actor_climbs_a_known_q_and_the_temperature_keeps_the_entropy() -> None:
    sac = SAC(
        SACConfig(name="SAC", learning_rate=1e-2, target_entropy=-3.0),
        Agent(make_spec(Arch.Markov), Hill),
        seed=0,
    )
    batch, metrics = batch_for(sac), {}
    away = (sac.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean()
    for _ in range(400):
        metrics = sac.update(batch)
    assert (sac.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean() < 0.1 < away
    assert metrics["entropy"].item() == pytest.approx(-3.0, abs=0.4)


def test_a_value_is_that_of_an_action_drawn_by_its_own_noise() -> None:
    sac = SAC(SACConfig(name="SAC"), Agent(make_spec(Arch.Markov), Hill), seed=0)
    batch = batch_for(sac)
    rows = torch.arange(5)
    actor, critic = (
        sac.agent.actor.unroll(batch).select_rows(rows),
        sac.agent.critic.unroll(batch).select_rows(rows),
    )
    head: Any = sac.agent.actor.head
    state = sac.generator.get_state()
    with torch.no_grad():
        for parameter in head.nets.parameters():
            parameter.zero_()  # the policy is tanh of standard noise, whatever the row
        value, log_prob = sac.soft_value(
            HeadOnRows(sac.agent.critic.head, critic),
            HeadOnRows(head, actor),
            torch.tensor(0.5),
            sac.min_q,
        )
    noise = torch.randn(5, 2, generator=sac.generator.set_state(state))
    torch.testing.assert_close(
        log_prob,
        (torch.distributions.Normal(0.0, 1.0).log_prob(noise) - torch.log(1 - torch.tanh(noise) ** 2)).sum(
            -1
        ),
    )
    torch.testing.assert_close(value, -10 * (torch.tanh(noise) - 0.5).square().sum(-1) - 0.5 * log_prob)
    taken = select_rows(batch.action, rows)
    torch.testing.assert_close(
        sac.q_values(HeadOnRows(sac.agent.critic.head, critic), taken)[0],
        -10 * (taken - 0.5).square().sum(-1),
    )


def test_the_entropy_that_it_aims_at_is_minus_the_dimensions_unless_given() -> None:
    for given, expected in ((None, -2.0), (-0.3, -0.3)):
        sac = SAC(SACConfig(name="SAC", target_entropy=given), Agent(make_spec(Arch.Markov), Hill), seed=0)
        assert (
            sac.target_entropy(HeadOnRows(sac.agent.actor.head, sac.agent.actor.unroll(batch_for(sac))))
            == expected
        )

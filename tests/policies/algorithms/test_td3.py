"""TD3: the value that it smooths, the hill that its actor climbs, and the noise that it explores with."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.agents import AGENT_ARCHS
from policies.agents.agent import Agent
from policies.agents.base import Arch, Features, PolicyRows
from policies.agents.heads import DeterministicHead, HeadSizes
from policies.algorithms.td3 import TD3, TD3Config
from policies.algorithms.transitions import HeadOnRows, transitions_of
from tests.policies.algorithms.test_off_policy import batch_for
from tests.trials import make_spec

every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)


class Hill(nn.Module):
    """Q_1 = shift - 10 |a - 0.5|^2 at every row, and Q_2 = Q_1 + 1, but where a is below 0, Q_2 = Q_1 - 1."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, seen: Features, action: Tensor) -> Tensor:
        first = self.shift - 10.0 * (action - 0.5).square().sum(-1)
        return torch.stack([first, first + torch.where(action[..., 0] < 0, -1.0, 1.0)])


def on_a_hill(arch: Arch = Arch.Markov, **options: Any) -> TD3:
    config = TD3Config(name="TD3", **options)
    return TD3(
        config,
        Agent(make_spec(arch), Hill, partial(DeterministicHead, deviation=config.exploration_noise)),
        seed=0,
    )


@every_arch
def test_the_actor_climbs_the_first_critic(arch: Arch) -> None:
    td3 = on_a_hill(arch, learning_rate=1e-2)
    batch = batch_for(td3)
    away = (td3.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean()
    for _ in range(300):
        td3.update(batch)
    assert (td3.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean() < 0.05 < away


def test_the_loss_of_the_actor_is_the_first_critic_s_value_of_its_action() -> None:
    td3 = on_a_hill()
    batch = batch_for(td3)
    action = td3.agent.unroll(batch).policy.mode()[batch.trains]
    expected = (10 * (action - 0.5).square().sum(-1)).mean()
    assert td3.update(batch)["actor_loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_value_is_the_smaller_one_of_the_target_policy_s_action_with_clipped_noise() -> None:
    """Against the formula with the same draws; at the bounds the action is clipped."""
    td3 = on_a_hill(target_noise=0.6, target_noise_clip=0.5)
    head: Any = td3.target_actor.head
    for output in (0.1, 2.0, -2.0):  # atanh of what the target policy answers
        with torch.no_grad():
            for parameter in head.nets.parameters():
                parameter.zero_()
            head.nets[0].layers[-1].bias.fill_(output)
        seen = Features(torch.zeros(500, 0), torch.zeros(500, 4))
        state = td3.generator.get_state()
        value = td3.next_value(HeadOnRows(td3.target_critic.head, seen), HeadOnRows(head, seen))
        noise = torch.randn(500, 2, generator=td3.generator.set_state(state)) * 0.6
        action = np.clip(np.tanh(output) + np.clip(noise.numpy(), -0.5, 0.5), -1, 1)
        hill = -10 * ((action - 0.5) ** 2).sum(-1)
        np.testing.assert_allclose(
            value.detach().numpy(),
            np.minimum(hill, hill + np.where(action[:, 0] < 0, -1, 1)),
            rtol=1e-4,
            atol=1e-5,
        )
        assert (noise.abs() > 0.5).any()


@every_arch
def test_targets_ask_the_policy_that_follows_and_not_the_policy_as_it_is(arch: Arch) -> None:
    targets = []
    for changed in ("", "actor", "target_actor"):
        td3 = on_a_hill(arch)
        batch = batch_for(td3)
        head: Any = {
            "": nn.Linear(1, 1),
            "actor": td3.agent.actor.head,
            "target_actor": td3.target_actor.head,
        }[changed]
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.add_(1.0)
        targets.append(td3.targets(batch, transitions_of(batch, td3.config), td3.agent.actor.unroll(batch)))
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[0], targets[2])


def test_collecting_adds_noise_within_the_bounds_and_evaluation_does_not() -> None:
    td3 = on_a_hill(exploration_noise=0.3)
    starts = torch.ones(4000, dtype=torch.bool)
    rows = PolicyRows(torch.zeros(4000, 4), torch.zeros(4000), torch.zeros(4000, 2), starts, starts)
    noise = torch.from_numpy(td3.agent.draw_noise(np.random.default_rng(0), 4000))
    still = td3.agent.act(rows, {}, noise, deterministic=True)[0]
    moved = td3.agent.act(rows, {}, noise)[0]
    assert torch.equal(still, still[:1].expand_as(still)) and still.abs().max() < 0.5
    assert (moved - still).std().item() == pytest.approx(0.3, abs=0.02)
    loud = on_a_hill(exploration_noise=5.0).agent.act(rows, {}, noise)[0]
    assert loud.abs().max() == 1.0

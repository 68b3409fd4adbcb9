"""SAC: who moves whom, the targets against an example worked out by hand, and that a frozen target is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from buffers.base import Batch, Needs, Sample
from policies.agents import AGENT_ARCHS
from policies.agents.agent import Agent
from policies.agents.base import Arch
from policies.agents.heads import HeadSizes
from policies.algorithms.base import ReturnHorizon
from policies.algorithms.sac import SAC, SACConfig
from tests.trials import Trial, make_replay, make_spec, make_trials, play

every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)


def make(arch: Arch, **options: Any) -> SAC:
    config = SACConfig(name="SAC", **options)
    return SAC(config, SAC.make_agent(config, make_spec(arch)), seed=0)


def batch_for(sac: SAC, **changes: Any) -> Batch:
    replay = make_replay(capacity=9)
    play(replay, make_trials(4, 9, fall=0.3, scale=1e-3), num_slots=2)
    return replay.sample(replace(SAC.needs(sac.config, sac.agent.arch), **changes), np.random.default_rng(0))


def copies(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def moved(module: nn.Module, before: list[Tensor]) -> bool:
    return any(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))


@every_arch
@pytest.mark.parametrize("alone", ["critic", "actor", "temperature"])
def test_each_loss_moves_its_own_parameters_only(arch: Arch, alone: str) -> None:
    sac = make(arch)
    parts = {"critic": sac.agent.critic, "actor": sac.agent.actor, "temperature": nn.ParameterList([sac.log_temperature])}
    for name, optimizer in sac.optimizers.items():
        if name != alone:
            optimizer.param_groups[0]["lr"] = 0.0
    before = {name: copies(part) for name, part in parts.items()}
    sac.update(batch_for(sac))
    assert {name for name, part in parts.items() if moved(part, before[name])} == {alone}


@every_arch
def test_no_gradient_reaches_what_a_loss_does_not_own(arch: Arch) -> None:
    """With only one backward pass done, only its owner has gradients; and every optimiser owns what no other owns."""
    owned = [id(parameter) for parameters in make(arch).parameters.values() for parameter in parameters]
    assert len(owned) == len(set(owned))
    for alone in ("critic", "actor"):
        sac = make(arch)
        differentiate = sac._differentiate
        sac._differentiate = lambda name, loss, f=differentiate, alone=alone: f(name, loss) if name == alone else None  # pyright: ignore[reportAttributeAccessIssue]
        sac._step = lambda name: torch.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
        sac.update(batch_for(sac))
        with_gradient = {name for name, parameters in sac.parameters.items() if any(parameter.grad is not None for parameter in parameters)}
        assert with_gradient == {alone}
        assert all(parameter.grad is None for parameter in sac.target.parameters())


@every_arch
def test_all_gradients_are_taken_where_the_parameters_stood_before_the_update(arch: Arch) -> None:
    """So none of them depends on how far another optimiser has just stepped."""
    gradients = []
    for learning_rate in (1e-12, 0.5):
        sac = make(arch, learning_rate=learning_rate)
        sac.update(batch_for(sac))
        gradients.append([parameter.grad for owned in sac.parameters.values() for parameter in owned])
    assert all(torch.equal(small, large) for small, large in zip(*gradients, strict=True))


def test_the_agent_s_parameters_are_all_owned() -> None:
    sac = make(Arch.Memory)
    owned = {id(parameter) for name in ("actor", "critic") for parameter in sac.parameters[name]}
    assert owned == {id(parameter) for parameter in sac.agent.parameters()}


@every_arch
def test_the_target_follows_the_critic_by_tau(arch: Arch) -> None:
    sac = make(arch, tau=0.25)
    before = copies(sac.target)
    sac.update(batch_for(sac))
    for old, now, critic in zip(before, sac.target.parameters(), sac.agent.critic.parameters(), strict=True):
        torch.testing.assert_close(now, 0.75 * old + 0.25 * critic)


class KnownQ(nn.Module):
    """A head that believes what the first number of an observation says; its other estimate is higher."""

    def forward(self, features: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        return torch.stack([obs[..., 0] + 7.0, obs[..., 0]])


def known_trial(number: int, *, falls: int, time_limit: int) -> Trial:
    """Two episodes with ends at those rows: the observation of row t is [100 + t, trial number, ...], its reward 10 t."""
    rows = max(falls, time_limit) + 1
    time = np.arange(rows)
    start = np.isin(time - 1, [-1, min(falls, time_limit)])
    obs = np.zeros((rows, 4), np.float32)
    obs[:, 0], obs[:, 1] = 100 + time, number
    reward = np.where(start, 0, 10 * time).astype(np.float32)
    return Trial(obs, np.zeros((rows, 2), np.float32), reward, time == falls, time == time_limit, start, time == 0, time == rows - 1)


# trial 0 falls at row 2, and its second episode ends at the time limit at row 6; trial 1 the other way round, at rows 2 and 5
WHOLE_TRIAL = {(0, 0): 60.5, (0, 1): 71.5, (0, 3): 92.0, (0, 4): 102.5, (0, 5): 113.0, (1, 0): 60.5, (1, 1): 71.5, (1, 3): 92.0, (1, 4): 50.0}
EPISODES = WHOLE_TRIAL | {(0, 1): 20.0, (1, 1): 71.0}


@every_arch
@pytest.mark.parametrize(("horizon", "expected"), [(ReturnHorizon.trial, WHOLE_TRIAL), (ReturnHorizon.episode, EPISODES)], ids=["trial", "episode"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("sample", Sample)
def test_targets_equal_those_worked_out_by_hand(
    arch: Arch, horizon: ReturnHorizon, expected: dict[tuple[int, int], float], alpha: float, sample: Sample
) -> None:
    sac = make(arch, discount=0.5, return_horizon=horizon)
    sac.target.head = KnownQ()
    with torch.no_grad():
        sac.log_temperature.copy_(torch.tensor(alpha).log())
        for parameter in sac.agent.actor.head.net.parameters():
            parameter.zero_()  # the policy is tanh of standard noise, whatever the row
    replay = make_replay(capacity=2, k=2, horizon=3)
    play(replay, [known_trial(0, falls=2, time_limit=6), known_trial(1, falls=5, time_limit=2)], num_slots=2)
    batch = replay.sample(Needs(on_policy=False, sample=sample, batch_size=100, window=2), np.random.default_rng(0))
    selected, state = sac._select(batch), sac.generator.get_state()
    y = sac.targets(batch, selected, sac.agent.actor.branch.unroll(batch))
    noise = torch.randn(len(y), 2, generator=sac.generator.set_state(state))
    log_prob = (torch.distributions.Normal(0.0, 1.0).log_prob(noise) - torch.log(1 - torch.tanh(noise) ** 2)).sum(-1)
    without_entropy = y + 0.5 * alpha * selected.carries * log_prob
    assert isinstance(batch.obs, Tensor)
    rows = batch.obs.flatten(0, 1)[selected.rows].int().tolist()
    assert {(row[1], row[0] - 100) for row in rows} == set(expected)
    for row, value in zip(rows, without_entropy.tolist(), strict=True):
        assert value == pytest.approx(expected[row[1], row[0] - 100], abs=1e-3)
    assert (alpha == 0) == torch.equal(y, without_entropy)


@every_arch
def test_with_targets_and_noise_frozen_the_critic_s_loss_on_a_fixed_batch_falls(arch: Arch) -> None:
    sac = make(arch, learning_rate=3e-3)
    for name in ("actor", "temperature"):
        sac.optimizers[name].param_groups[0]["lr"] = 0.0
    batch, frozen, noise = batch_for(sac), [parameter.clone() for parameter in sac.target.parameters()], sac.generator.get_state()
    losses = []
    for _ in range(150):
        sac.generator.set_state(noise)
        losses.append(sac.update(batch)["critic_loss"].item())
        with torch.no_grad():
            for parameter, value in zip(sac.target.parameters(), frozen, strict=True):
                parameter.copy_(value)
    assert losses[-1] < 0.5 * losses[0]
    assert all(after < 1.05 * before for before, after in zip(losses[:-10:10], losses[10::10], strict=False))


class Hill(nn.Module):
    """Q = shift - 10 |a - 0.5|^2 at every row."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        return (self.shift - 10.0 * (action - 0.5).square().sum(-1)).expand(2, -1)


def test_the_actor_climbs_a_known_q_and_the_temperature_keeps_the_entropy() -> None:
    sac = SAC(SACConfig(name="SAC", learning_rate=1e-2, target_entropy=-3.0), Agent(make_spec(Arch.Markov), Hill), seed=0)
    batch, metrics = batch_for(sac), {}
    away = (sac.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean()
    for _ in range(400):
        metrics = sac.update(batch)
    assert (sac.agent.unroll(batch).policy.mode()[batch.trains] - 0.5).abs().mean() < 0.1 < away
    assert metrics["entropy"].item() == pytest.approx(-3.0, abs=0.4)


@pytest.mark.parametrize("window", [1, 4, 50])
def test_windows_train_as_well(window: int) -> None:
    sac = make(Arch.Memory, window=window)
    batch = batch_for(sac)
    assert batch.shape[0] <= window + 2
    before = copies(sac.agent)
    sac.update(batch)
    assert moved(sac.agent.actor, before[: len(list(sac.agent.actor.parameters()))])


def test_gradients_are_clipped_on_demand() -> None:
    for limit, clipped in ((None, False), (1e-3, True)):
        sac = make(Arch.Memory, max_grad_norm=limit)
        metrics = sac.update(batch_for(sac))
        norm = nn.utils.get_total_norm([parameter.grad for parameter in sac.agent.critic.parameters() if parameter.grad is not None])
        assert (norm.item() <= 1.01e-3) == clipped
        assert metrics["critic_grad_norm"].item() > 1e-3, "what is reported is the norm before"


def test_what_it_needs() -> None:
    config = SACConfig(name="SAC", batch_size=5, transitions_batch_size=7)
    assert SAC.needs(config, Arch.Markov) == Needs(on_policy=False, sample=Sample.transitions, batch_size=7)
    for arch in (Arch.Memory, Arch.Memory_Markov):
        assert SAC.needs(config, arch) == Needs(on_policy=False, sample=Sample.trials, batch_size=5)
        assert SAC.needs(replace(config, window=9), arch) == Needs(on_policy=False, sample=Sample.windows, batch_size=5, window=9)

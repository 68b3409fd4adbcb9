"""DQN: whose choice and whose value a target is, how epsilon falls, and that it acts by its critic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.agents.agent import Agent
from policies.agents.base import Arch, Encoders, Features, PolicyRows, select_rows
from policies.algorithms.dqn import DQN, DQNConfig
from policies.algorithms.transitions import HeadOnRows, transitions_of
from tests.policies.algorithms.test_discrete_sac import bandit, batch_of
from tests.trials import KINDS, make_rows, make_spec

every_arch = pytest.mark.parametrize("arch", [Arch.Markov, Arch.Memory], ids=lambda arch: arch.name)


def make(arch: Arch, kind: str = "discrete", **options: Any) -> DQN:
    config = DQNConfig(name="DQN", **options)
    return DQN(config, DQN.make_agent(config, make_spec(arch, kind=KINDS[kind])), seed=0)


def starts(count: int, *, obs_dim: int = 4) -> PolicyRows:
    flags, rows = torch.ones(count, dtype=torch.bool), make_rows(count, KINDS["discrete"])
    return PolicyRows(
        torch.eye(count, obs_dim), torch.zeros(count), torch.from_numpy(rows.prev_action), flags, flags
    )


def test_a_memory_of_the_critic_alone_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"algorithm=DQN acts by its critic.*use agent=Memory\.$"):
        make(Arch.Memory_Markov)
    with pytest.raises(ValueError, match=r"^algorithm=DQN acts by its critic, so there are no two encoders"):
        DQN.make_agent(
            DQNConfig(name="DQN"), make_spec(Arch.Memory, kind=KINDS["discrete"], encoders=Encoders.separate)
        )


@every_arch
def test_it_acts_by_its_critic_and_has_no_parameters_beside_it(arch: Arch) -> None:
    dqn = make(arch)
    agent = dqn.agent
    assert {id(parameter) for parameter in agent.parameters()} == {
        id(parameter) for parameter in agent.critic.parameters()
    }
    assert set(dqn.optimizers) == {"critic"}
    rows, state = starts(3), agent.initial_state(3)
    q: Tensor = agent.critic.head(agent.critic.step(rows, agent.initial_state(3))[0])
    chosen = agent.act(rows, state, torch.zeros(3, 3), deterministic=True)[0]
    assert torch.equal(chosen, q.mean(0).argmax(-1))


def test_a_target_is_the_target_critic_s_value_of_the_critic_s_choice() -> None:
    """Q = [1, 3, 2] chooses the middle one, of which Q' = [10, 20, 30] says 20; a mask forbids it, and then
    it is 30.
    """
    dqn = make(Arch.Markov)
    for network, values in ((dqn.agent.critic, [1.0, 3.0, 2.0]), (dqn.target_critic, [10.0, 20.0, 30.0])):
        head: Any = network.head
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.zero_()
            head.nets[0].layers[-1].bias.copy_(torch.tensor(values))
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.int8)
    seen = Features(torch.zeros(4, 0), torch.zeros(4, 4), mask)
    value = dqn.next_value(HeadOnRows(dqn.target_critic.head, seen), HeadOnRows(dqn.agent.actor.head, seen))
    assert value.tolist() == [20.0, 30.0, 10.0, 20.0], "where nothing is allowed, nothing is forbidden"


@every_arch
@pytest.mark.parametrize("kind", ["discrete", "discrete-from-5", "discrete-masked"])
def test_targets_in_a_batch_follow_the_formula(arch: Arch, kind: str) -> None:
    dqn, batch = make(arch, kind), batch_of(kind)
    with torch.no_grad():
        for parameter in dqn.target_critic.parameters():
            parameter.mul_(-1.5)
    transitions = transitions_of(batch, dqn.config)
    with torch.no_grad():
        critic = dqn.agent.critic.unroll(batch)
        y = dqn.targets(batch, transitions, critic)
        here, there = (
            dqn.agent.critic.head(critic)[0].flatten(0, 1),
            dqn.target_critic.head(dqn.target_critic.unroll(batch))[0].flatten(0, 1),
        )
    for number, row in enumerate(transitions.next_rows.tolist()):
        allowed = (
            range(here.shape[1])
            if critic.mask is None
            else select_rows(critic.mask, torch.tensor([row]))[0].nonzero().flatten().tolist()
        )
        best = max(allowed, key=lambda action: here[row, action].item())
        expected = transitions.next_reward[number] + 0.99 * transitions.bootstraps[number] * there[row, best]
        assert y[number].item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize(("epsilon_env_steps", "total"), [(40, 1000), (None, 80)])
def test_epsilon_falls_in_a_straight_line_of_env_steps_and_outlives_a_checkpoint(
    epsilon_env_steps: int | None, total: int
) -> None:
    """To its end after as many env steps as are asked for, or after half of the run."""
    dqn, other = (
        make(Arch.Markov, epsilon_start=0.8, epsilon_end=0.2, epsilon_env_steps=epsilon_env_steps)
        for _ in range(2)
    )
    batch, found = bandit(np.random.default_rng(0)), list[float]()
    for env_steps in (0, 10, 20, 30, 40, 50):
        dqn.at(env_steps, total)
        found.append(dqn.update(batch)["epsilon"].item())
        other.load_state_dict(dqn.state_dict())
        assert other.agent.state_dict()["head.epsilon"].item() == found[-1]
    assert found == pytest.approx([0.8, 0.65, 0.5, 0.35, 0.2, 0.2])


def test_epsilon_does_not_rise_in_a_run_that_is_prolonged() -> None:
    """Half of the longer run is later: it would try as much as at first, and forget what it has learned."""
    dqn = make(Arch.Markov, epsilon_start=1.0, epsilon_end=0.1)
    dqn.at(50, 100)
    dqn.at(60, 1000)
    assert dqn.agent.state_dict()["head.epsilon"].item() == pytest.approx(0.1)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_so_many_actions_are_random_and_evaluation_is_greedy(epsilon: float) -> None:
    agent: Agent = make(Arch.Markov, epsilon_start=epsilon).agent
    flags = torch.ones(6000, dtype=torch.bool)
    rows = PolicyRows(
        torch.zeros(6000, 4), torch.zeros(6000), torch.zeros(6000, dtype=torch.long), flags, flags
    )
    noise = torch.from_numpy(agent.draw_noise(np.random.default_rng(0), 6000))
    best = agent.act(rows, {}, noise, deterministic=True)[0]
    assert best.unique().numel() == 1
    taken = agent.act(rows, {}, noise)[0]
    for action in range(3):
        expected = epsilon / 3 + (1 - epsilon) * (action == best[0].item())
        assert (taken == action).float().mean().item() == pytest.approx(expected, abs=0.02)


@every_arch
@pytest.mark.parametrize("options", [{}, {"critics": 4, "critics_in_target": 2}], ids=["one", "ensemble"])
def test_a_bandit_is_learned(arch: Arch, options: dict[str, Any]) -> None:
    dqn, batch = make(arch, learning_rate=1e-2, **options), bandit(np.random.default_rng(0))

    def chosen() -> list[int]:
        with torch.inference_mode():
            return dqn.agent.act(
                starts(3), dqn.agent.initial_state(3), torch.zeros(3, 3), deterministic=True
            )[0].tolist()

    for _ in range(200):
        dqn.update(batch)
    assert chosen() == [0, 1, 2]
    q = dqn.agent.critic.head(dqn.agent.critic.unroll(batch))[:, 0].mean(0)
    assert isinstance(batch.obs, Tensor)
    assert (q - batch.obs[0, :, :3]).abs().mean() < 0.2

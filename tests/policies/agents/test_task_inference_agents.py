"""Task inference in agents: where it is switched off or shared, and that a hidden task is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from buffers.base import Batch
from policies.agents import AGENT_ARCHS
from policies.agents.agent import Agent
from policies.agents.base import Arch, Decodes, Encoders
from policies.agents.heads import QHead
from tests.policies.agents.test_task_inference import batch_of, infer, make, part_of
from tests.trials import KINDS, make_spec

# -- where it is off -----------------------------------------------------------------------------------------


def test_without_a_weight_there_is_none_of_it() -> None:
    agent, plain = make(weight=0.0), Agent(make_spec(Arch.Memory), QHead)
    assert agent.state_dict().keys() == plain.state_dict().keys()
    assert all(
        torch.equal(one, other) for one, other in zip(agent.parameters(), plain.parameters(), strict=True)
    )
    generator = torch.Generator().manual_seed(3)
    state, batch = generator.get_state(), agent.normalise(batch_of())
    assert agent.inference_losses(
        batch, agent.draw_inference_seed(generator), critic=agent.critic.unroll(batch)
    ) == (
        [],
        {},
    )
    assert torch.equal(state, generator.get_state())
    assert agent.critic.unroll(batch).memory is None


@pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)
def test_networks_with_a_memory_infer_the_task(arch: Arch) -> None:
    agent = make(arch)
    assert (agent.actor.inference is None, agent.critic.inference is None) == (
        arch is not Arch.Memory,
        arch is Arch.Markov,
    )
    batch = agent.normalise(batch_of())
    outputs = agent.unroll(batch)
    losses, metrics = agent.inference_losses(batch, 0, actor=outputs.actor, critic=outputs.critic)
    assert len(losses) == {Arch.Markov: 0, Arch.Memory: 2, Arch.Memory_Markov: 1}[arch]
    assert {name.partition("_")[0] for name in metrics} == {
        Arch.Markov: set(),
        Arch.Memory: {"actor", "critic"},
        Arch.Memory_Markov: {"critic"},
    }[arch]
    assert all(
        value.shape == () and value.isfinite() and not value.requires_grad for value in metrics.values()
    )


def test_what_is_shared_infers_once() -> None:
    agent = make(encoders=Encoders.shared)
    assert agent.actor.inference is agent.critic.inference
    batch = agent.normalise(batch_of())
    outputs = agent.unroll(batch)
    losses, metrics = agent.inference_losses(batch, 0, actor=outputs.actor, critic=outputs.critic)
    assert len(losses) == 1 and all(name.startswith("critic_") for name in metrics)


@pytest.mark.parametrize("kind", ["continuous-dict", "discrete-picture", "discrete-masked"])
def test_beside_a_picture_rewards_are_predicted_and_observations_refused(kind: str) -> None:
    loss, said = infer(make(kind=KINDS[kind]), batch_of(KINDS[kind]))
    assert loss.isfinite() and said["reward_error"] > 0
    with pytest.raises(ValueError, match=r"use agent\.task_inference\.decode=reward\.$"):
        make(kind=KINDS[kind], decode=Decodes.reward_and_transition)
    make(kind=KINDS[kind], decode=Decodes.reward_and_transition, weight=0.0)


# -- learning ------------------------------------------------------------------------------------------------


def tasks_of(rng: np.random.Generator, columns: int = 32, rows: int = 9) -> Batch:
    """Trials in which a hidden sign decides what the action, also a sign, is worth: reward 1 or -1, each as
    often as the other.
    """
    shape = (rows, columns)
    task, action = (
        torch.from_numpy(rng.integers(2, size=size) * 2.0 - 1.0).float() for size in ((columns,), shape)
    )
    start, end = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    start[0], end[-1] = True, True
    reward = torch.cat([torch.zeros(1, columns), (task * action)[:-1]])
    actions = torch.stack([action, torch.zeros(shape)], -1)
    before = torch.cat([torch.zeros(1, columns, 2), actions[:-1]])
    return Batch(
        torch.zeros(*shape, 4),
        reward,
        torch.zeros_like(end),
        end,
        start,
        start,
        end,
        torch.ones_like(end),
        before,
        actions,
        ~end,
    )


@pytest.mark.parametrize("remembers", [True, False])
def test_a_hidden_task_is_found_by_what_remembers(remembers: bool) -> None:
    """Without it, nothing predicts the rewards better than a constant, whose error is 1; with it, the steps
    to come too.
    """
    agent, rng = make(weight=1.0, rows=4, steps=4, hidden=[16]), np.random.default_rng(0)
    network, inference = part_of(agent)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    errors = []
    for seed in range(200):
        batch = tasks_of(rng)
        seen = network.unroll(batch)
        assert seen.memory is not None
        seen = seen if remembers else seen._replace(memory=torch.zeros_like(seen.memory))
        loss, said = inference.loss(batch, seen, seed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(said["reward_error"].item())
    assert (np.mean(errors[-20:]) < 0.25) == remembers
    assert np.mean(errors[-20:]) > (0.0 if remembers else 0.9) and np.mean(errors[:5]) > 0.8

"""Branches: each input of a memory can be switched off, the current observation can pass it by, and a Markov
branch remembers nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from buffers.base import Batch, Needs, Sample
from policies.agents.agent import Agent
from policies.agents.base import Arch, PolicyRows
from policies.agents.branches import MarkovBranch
from policies.agents.heads import QHead
from tests.trials import make_replay, make_spec, make_trials, play


def make(arch: Arch, **changes: Any) -> Agent:
    return Agent(make_spec(arch, **changes), QHead)


def some_batch() -> Batch:
    replay = make_replay(capacity=5)
    play(replay, make_trials(2, 5, scale=1e-3), num_slots=2)
    return replay.sample(Needs(on_policy=False, sample=Sample.trials, batch_size=8), np.random.default_rng(0))


def with_another_past(batch: Batch, name: str) -> Batch:
    """The input changed before row 4."""
    values = getattr(batch, name).clone()
    values[:4] += 1
    return replace(batch, **{name: values})


@pytest.mark.parametrize(
    ("name", "option"),
    [("prev_action", "action_embedding"), ("reward", "reward_embedding"), ("obs", "obs_embedding")],
)
@pytest.mark.parametrize(("size", "used"), [(0, False), (3, True)])
def test_an_embedding_of_size_zero_switches_its_input_off(
    name: str, option: str, size: int, used: bool
) -> None:
    agent, batch = make(Arch.Memory, **{option: size}), some_batch()
    outputs, others = agent.unroll(batch), agent.unroll(with_another_past(batch, name))
    for part, other in ((outputs.actor, others.actor), (outputs.critic, others.critic)):
        assert (not torch.equal(part.context[4:], other.context[4:])) == used


@pytest.mark.parametrize(("size", "used"), [(0, False), (4, True)])
def test_the_shortcut_passes_the_memory_and_can_be_left_out(size: int, used: bool) -> None:
    agent, batch = make(Arch.Memory, obs_embedding=0, shortcut_embedding=size), some_batch()
    before, after = (
        agent.unroll(one).policy.log_prob(batch.action) for one in (batch, with_another_past(batch, "obs"))
    )
    assert (not torch.equal(before[:4], after[:4])) == used, "the current observation"
    assert torch.equal(before[4:], after[4:]), "a past one"


def test_a_memory_with_nothing_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to read"):
        make(Arch.Memory, action_embedding=0, reward_embedding=0, obs_embedding=0)


def test_a_markov_branch_has_no_features_and_no_state() -> None:
    branch, batch = MarkovBranch(), some_batch()
    obs, no = torch.zeros(3, 4), torch.zeros(3, dtype=torch.bool)
    features, state = branch.step(
        PolicyRows(obs, torch.zeros(3), torch.zeros(3, 2), no, no), obs, branch.initial_state(3)
    )
    assert (features.shape, state) == ((3, 0), {})
    assert branch.unroll(batch, torch.zeros(*batch.shape, 4))[0].shape == (*batch.shape, 0)
    assert list(branch.parameters()) == []

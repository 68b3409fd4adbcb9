"""Normalisation: running moments against those of all rows at once, what is left alone, and what a checkpoint
carries.
"""

from __future__ import annotations

import io
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.base import Batch
from buffers.rollout import RolloutBuffer
from envs.interop.spaces import MASK_KEY
from policies.agents.agent import Agent
from policies.agents.base import Arch, PolicyRows
from policies.agents.heads import QHead
from policies.agents.normalisation import FARTHEST, LARGEST_REWARD, Moments, Normaliser, discounted_returns
from tests.trials import KINDS, OBS_SPACE, PLAIN, Kind, make_replay, make_spec, make_trials, play


def trials_of(seed: int, kind: Kind = PLAIN) -> Batch:
    """Whole trials, several in a column, with padding."""
    replay = make_replay(capacity=9, kind=kind, storage=RolloutBuffer)
    play(replay, make_trials(seed, 9, fall=0.3), num_slots=3, kind=kind)
    return replay.whole(0, 9)


def vector(batch: Batch) -> torch.Tensor:
    assert isinstance(batch.obs, torch.Tensor)
    return batch.obs


def make(**changes: Any) -> Agent:
    return Agent(make_spec(Arch.Memory, normalise_obs=True, normalise_reward=True, **changes), QHead)


def test_moments_taken_in_by_batches_are_those_of_all_values_far_from_zero() -> None:
    values = 1e6 + torch.randn(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moments = Moments.of((3,))
    for part in values.split([1, 499, 0, 500]):
        moments.add(part)
    torch.testing.assert_close(moments.mean, values.mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(moments.deviation(), values.std(0, correction=0), rtol=1e-6, atol=0)


def test_rows_that_were_learned_from_come_out_with_mean_0_and_deviation_1() -> None:
    normaliser, first, second = Normaliser(OBS_SPACE, obs=True, reward=True), trials_of(0), trials_of(1)
    for batch in (first, second):
        normaliser.update(batch, discount=0.9)
    seen, raw = (
        torch.cat([vector(one)[one.valid] for one in pair])
        for pair in ((normaliser(first), normaliser(second)), (first, second))
    )
    assert raw.std(0).max() > 2 and raw.mean(0).max() > 2
    torch.testing.assert_close(seen.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std(0, correction=0), torch.ones(4))
    returns = torch.cat([discounted_returns(batch, 0.9)[batch.valid] for batch in (first, second)])
    torch.testing.assert_close(
        normaliser(first).reward.double(),
        first.reward.double() / returns.std(correction=0),
        rtol=1e-5,
        atol=0,
    )


def test_returns_are_discounted_within_a_trial_and_not_over_the_start_of_an_episode() -> None:
    batch = trials_of(0)
    found = discounted_returns(batch, 0.5)
    for column in range(batch.shape[1]):
        sofar = 0.0
        for t in range(int(batch.valid[:, column].sum())):
            if batch.trial_start[t, column]:
                sofar = 0.0
            elif not batch.episode_start[t, column]:
                sofar *= 0.5
            sofar += batch.reward[t, column].item()
            assert found[t, column].item() == pytest.approx(sofar)


def test_padding_and_the_rest_of_the_agent_s_rows_do_not_matter() -> None:
    first, other, batch = (
        Normaliser(OBS_SPACE, obs=True, reward=True),
        Normaliser(OBS_SPACE, obs=True, reward=True),
        trials_of(0),
    )
    assert not batch.valid.all()
    first.update(batch, 0.9)
    other.update(replace(batch, obs=vector(batch).masked_fill(~batch.valid[..., None], float("nan"))), 0.9)
    assert torch.equal(vector(first(batch)), vector(other(batch)))


def test_flags_masks_and_pictures_are_left_as_they_are() -> None:
    space = spaces.Box(np.array([-np.inf, 0.0, -1.0], np.float32), np.array([np.inf, 1.0, 1.0], np.float32))
    moments = Normaliser(space, obs=True, reward=False)
    rows = torch.tensor([[5.0, 0.0, 0.3], [9.0, 1.0, -0.3]])
    batch = trials_of(0)
    moments.update(
        replace(batch, obs=rows[torch.randint(2, batch.shape, generator=torch.Generator().manual_seed(0))]),
        0.9,
    )
    after = moments(PolicyRows(rows, *[torch.zeros(2)] * 4)).obs
    assert isinstance(after, torch.Tensor)
    assert torch.equal(after[:, 1:], rows[:, 1:]) and (after[:, 0].abs() < 2).all()
    kind = KINDS["discrete-masked"]
    batch, normaliser = trials_of(0, kind), Normaliser(kind.obs_space, obs=True, reward=True)
    normaliser.update(batch, 0.9)
    seen = normaliser(batch).obs
    assert isinstance(seen, dict) and isinstance(batch.obs, dict)
    assert torch.equal(seen[MASK_KEY], batch.obs[MASK_KEY]) and torch.equal(
        seen["picture"], batch.obs["picture"]
    )
    assert not torch.equal(seen["where"], batch.obs["where"])


def test_what_hardly_ever_changes_is_cut_off_when_it_does() -> None:
    normaliser, batch = Normaliser(OBS_SPACE, obs=True, reward=False), trials_of(0)
    normaliser.update(replace(batch, obs=torch.ones_like(vector(batch))), 0.9)
    seen = normaliser(batch).obs
    assert isinstance(seen, torch.Tensor) and seen.abs().max() == FARTHEST


def test_rare_rewards_differ_for_losses_and_are_cut_off_for_networks() -> None:
    agent, batch = make(), trials_of(0)
    assert agent.normaliser is not None
    agent.update_normaliser(batch, 0.9)
    deviation = 1.0 / float(agent.normaliser.get_buffer("reward_scale"))

    def paid(deviations: float) -> Batch:
        return replace(batch, reward=torch.where(batch.trial_end, deviations * deviation, 0.0))

    learned = [
        float(agent.normalise(paid(times)).reward.max())
        for times in (5.0, 2 * FARTHEST, 3 * FARTHEST, 2 * LARGEST_REWARD)
    ]
    assert learned == pytest.approx([5.0, 2 * FARTHEST, 3 * FARTHEST, LARGEST_REWARD])
    small, cut, other = (
        agent.unroll(agent.normalise(paid(times))).actor.context
        for times in (5.0, 2 * FARTHEST, 3 * FARTHEST)
    )
    assert torch.equal(cut, other) and not torch.equal(small, cut)


def test_acting_and_unrolling_read_the_same_numbers_and_change_nothing() -> None:
    agent, batch = make(), trials_of(0)
    agent.update_normaliser(batch, 0.9)
    before = agent.state_dict()
    reads = agent.normalise(batch)
    outputs = agent.unroll(reads)
    assert isinstance(batch.obs, torch.Tensor) and isinstance(reads.obs, torch.Tensor)
    state = agent.initial_state(batch.shape[1])
    for t in range(batch.shape[0]):
        rows = PolicyRows(
            batch.obs[t], batch.reward[t], batch.prev_action[t], batch.episode_start[t], batch.trial_start[t]
        )
        action, _, state = agent.act(rows, state, torch.zeros(batch.shape[1], 2), deterministic=True)
        torch.testing.assert_close(action[batch.valid[t]], outputs.policy.mode()[t][batch.valid[t]])
    assert not torch.equal(reads.obs, batch.obs)
    assert str(before) == str(agent.state_dict())


def test_what_was_learned_goes_through_a_file_and_to_a_copy() -> None:
    agent, other, batch = make(), make(), trials_of(0)
    agent.update_normaliser(batch, 0.9)
    file = io.BytesIO()
    torch.save(agent.state_dict(), file)
    file.seek(0)
    assert not torch.equal(
        agent.unroll(agent.normalise(batch)).actor.obs, other.unroll(other.normalise(batch)).actor.obs
    )
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(
        agent.unroll(agent.normalise(batch)).actor.obs, other.unroll(other.normalise(batch)).actor.obs
    )
    for one in (agent, other):
        one.update_normaliser(trials_of(1), 0.9)
    assert torch.equal(
        agent.unroll(agent.normalise(batch)).actor.obs, other.unroll(other.normalise(batch)).actor.obs
    )


def test_nothing_is_normalised_unless_it_is_asked_for() -> None:
    agent, batch = Agent(make_spec(Arch.Memory), QHead), trials_of(0)
    agent.update_normaliser(batch, 0.9)
    assert agent.normalise(batch) is batch
    assert not [name for name in agent.state_dict() if "normaliser" in name]
    obs_only = Agent(make_spec(Arch.Memory, normalise_obs=True), QHead)
    obs_only.update_normaliser(batch, 0.9)
    assert torch.equal(obs_only.normalise(batch).reward, batch.reward)


def test_rewards_are_left_alone_until_trials_differ_in_them_and_rare_ones_are_cut_off() -> None:
    normaliser, batch = Normaliser(OBS_SPACE, obs=False, reward=True), trials_of(0)
    nothing = replace(batch, reward=torch.zeros_like(batch.reward))
    paid = replace(nothing, reward=torch.full_like(batch.reward, 3.0))
    normaliser.update(nothing, 0.9)
    assert torch.equal(normaliser(paid).reward, paid.reward)
    once = nothing.reward.clone()
    once[-1, 0] = 1e-2
    for _ in range(50):
        normaliser.update(nothing, 0.9)
    normaliser.update(replace(batch, reward=once), 0.9)
    assert normaliser.get_buffer("reward_scale") > 100
    assert torch.equal(normaliser(paid).reward, torch.full_like(batch.reward, LARGEST_REWARD))


@pytest.mark.parametrize("scaled", [True, False])
def test_a_memory_reads_rewards_by_their_own_mean_and_deviation_where_it_is_asked_to(scaled: bool) -> None:
    batch = replace(trials_of(0), reward=trials_of(0).reward * 0.01 - 3.0)
    normaliser = Normaliser(OBS_SPACE, obs=False, reward=scaled, standard=True)
    normaliser.update(batch, 0.9)
    seen, brought = normaliser(batch), batch.valid & ~batch.episode_start
    read = normaliser.read_reward(seen)
    torch.testing.assert_close(read[brought].mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(read[brought].std(correction=0), torch.tensor(1.0), atol=1e-3, rtol=0)
    assert not read[batch.episode_start].any()
    # Losses read what they read without it.
    usual = Normaliser(OBS_SPACE, obs=False, reward=scaled)
    usual.update(batch, 0.9)
    assert torch.equal(seen.reward, usual(batch).reward)
    other = Normaliser(OBS_SPACE, obs=False, reward=scaled, standard=True)
    other.load_state_dict(normaliser.state_dict())
    assert torch.equal(other.read_reward(other(batch)), read)
    huge = replace(seen, reward=torch.full_like(seen.reward, 1e9))
    assert other.read_reward(huge).max() == FARTHEST


def test_an_agent_and_its_copy_read_rewards_each_by_its_own_normaliser() -> None:
    batch = trials_of(0)
    # Of three numbers all may be 0 after their ReLU.
    plain, agent = (make(reward_embedding=16, standardise_reward=standard) for standard in (False, True))
    for one in (plain, agent):
        one.update_normaliser(batch, 0.9)
    seen = agent.normalise(batch)
    assert torch.equal(seen.reward, plain.normalise(batch).reward)
    before = agent.unroll(seen).actor.context
    assert not torch.equal(before, plain.unroll(seen).actor.context)
    copied = deepcopy(agent)
    agent.update_normaliser(replace(batch, reward=100 * batch.reward), 0.9)
    assert torch.equal(copied.unroll(seen).actor.context, before)
    assert not torch.equal(agent.unroll(seen).actor.context, before)

"""Task inference: its loss against loops over rows and steps, and the parts that its gradient reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Independent, Normal
from torch.distributions import kl_divergence as theirs

from buffers.base import Batch, Needs, Sample
from policies.agents.agent import Agent, Network
from policies.agents.base import Arch, Decodes, Encoders, Features, HeadsRead, TaskInferenceConfig
from policies.agents.heads import QHead, QOfChoicesHead
from policies.agents.task_inference import TaskInference, kl_divergence
from policies.memory import MEMORIES
from tests.policies.agents.test_agent import SCALE, TOLERANCE, acted, trials_of
from tests.trials import KINDS, PLAIN, Kind, make_replay, make_spec, make_trials, play

# Nothing is drawn but m.
EVERYTHING: dict[str, Any] = {"weight": 1.0, "rows": None, "steps": None, "hidden": [6]}
every_decoding = pytest.mark.parametrize("decode", Decodes, ids=lambda decode: decode.name)
every_reading = pytest.mark.parametrize("heads_read", HeadsRead, ids=lambda reads: reads.name)


def make(
    arch: Arch = Arch.Memory,
    *,
    kind: Kind = PLAIN,
    memory: str = "GRU",
    encoders: Encoders = Encoders.separate,
    **options: Any,
) -> Agent:
    head = QOfChoicesHead if isinstance(kind.action_space, spaces.Discrete) else QHead
    return Agent(
        make_spec(
            arch,
            memory,
            kind,
            encoders=encoders,
            task_inference=TaskInferenceConfig(**(EVERYTHING | options)),
        ),
        head,
    )


def batch_of(kind: Kind = PLAIN, seed: int = 4) -> Batch:
    """Nine trials of two episodes with falls, in fewer columns, with padding."""
    replay = make_replay(capacity=9, kind=kind)
    play(replay, make_trials(seed, 9, fall=0.3, scale=1e-3), num_slots=2, kind=kind)
    return replay.whole(0, 9)


def part_of(agent: Agent) -> tuple[Network, TaskInference]:
    assert agent.critic.inference is not None
    return agent.critic, agent.critic.inference


def infer(agent: Agent, batch: Batch, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    network, inference = part_of(agent)
    batch = agent.normalise(batch)
    return inference.loss(batch, network.unroll(batch), seed)


def steps_of(batch: Batch, time: int, column: int) -> Iterator[int]:
    """The rows at which the steps of a row's trial arrive, found by walking."""
    first = time
    while first > 0 and not batch.trial_start[first, column]:
        first -= 1
    for row in range(first + 1, batch.shape[0]):
        if batch.trial_start[row, column] or not batch.valid[row, column]:
            return
        if not batch.episode_start[row, column]:
            yield row


# -- the loss ------------------------------------------------------------------------------------------------


@every_decoding
@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_the_loss_equals_a_loop_over_rows_and_steps(decode: Decodes, kind: str) -> None:
    agent, batch = make(kind=KINDS[kind], decode=decode, kl_weight=0.3, weight=2.0), batch_of(KINDS[kind])
    batch = agent.normalise(replace(batch, reward=batch.reward.double()))
    assert (
        not batch.valid.all() and batch.trial_start[1:].any() and (batch.terminated & ~batch.trial_end).any()
    )
    network, inference = part_of(agent)
    seen = network.unroll(replace(batch, reward=batch.reward.float()))
    assert seen.memory is not None
    seen, inference = (
        seen._replace(obs=seen.obs.double(), memory=seen.memory.double()),
        inference.double(),
    )
    assert seen.memory is not None
    loss, said = inference.loss(batch, seen, 5)
    draws = torch.Generator().manual_seed(5)
    torch.rand(int(batch.trains.sum()), batch.shape[0], generator=draws)  # orders steps; all are taken
    noise = torch.randn(int(batch.trains.sum()), 5, generator=draws, dtype=torch.float64)
    losses, divergences = [], []
    for number, (time, column) in enumerate(batch.trains.nonzero().tolist()):
        mean, log_var = inference.belief(seen.memory[time, column]).chunk(2)
        before_mean, before_log_var = torch.zeros(2, 5, dtype=torch.float64)
        if not batch.trial_start[time, column]:
            before_mean, before_log_var = inference.belief(seen.memory[time - 1, column]).chunk(2)
        divergence = theirs(
            Normal(mean, (log_var / 2).exp()), Normal(before_mean, (before_log_var / 2).exp())
        )
        latent, error, steps = (
            mean + (log_var / 2).exp() * noise[number],
            torch.zeros(()),
            list(steps_of(batch, time, column)),
        )
        for row in steps:
            action = agent.actions.previous(batch)[row, column]  # what led to the row
            obs, next_obs = seen.obs[row - 1, column], seen.obs[row, column]
            predicted = inference.reward(torch.cat([latent, obs, action, next_obs]))[0]
            error = error + (predicted - batch.reward[row, column]) ** 2
            if (transition := inference.transition) is not None:
                error = error + (transition(torch.cat([latent, obs, action])) - next_obs).square().mean()
        losses.append((error + 0.3 * divergence.sum()) / len(steps))
        divergences.append(divergence.sum())
    torch.testing.assert_close(loss, 2.0 * torch.stack(losses).mean())
    torch.testing.assert_close(said["elbo"], -torch.stack(losses).mean())
    torch.testing.assert_close(said["belief_kl"], torch.stack(divergences).mean())
    assert (inference.transition is None) == ("transition_error" not in said) == (decode is Decodes.reward)


def test_an_action_beyond_a_bound_predicts_what_the_bound_does() -> None:
    agent, batch = make(decode=Decodes.reward_and_transition), batch_of()
    network, inference = part_of(agent)
    batch = agent.normalise(batch)
    seen = network.unroll(batch)
    far, held, other = (
        inference.loss(replace(batch, prev_action=action), seen, 0)[0]
        for action in (
            3.0 * batch.prev_action,
            (3.0 * batch.prev_action).clamp(-1.0, 1.0),
            0.5 * batch.prev_action,
        )
    )
    assert torch.equal(far, held) and not torch.equal(far, other)


def test_the_divergence_is_that_of_torch_distributions() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(4, 7, 3, dtype=torch.float64).unbind()
    ours = kl_divergence(*numbers)
    first, second = (
        Independent(Normal(mean, (log_var / 2).exp()), 1) for mean, log_var in (numbers[:2], numbers[2:])
    )
    torch.testing.assert_close(ours, theirs(first, second))
    assert not kl_divergence(numbers[0], numbers[1], numbers[0], numbers[1]).any()


def certain(agent: Agent) -> Agent:
    """Beliefs so narrow that m is their mean."""
    with torch.no_grad():
        for network in {agent.actor, agent.critic}:
            if network.inference is not None:
                network.inference.belief.bias[network.inference.config.latent :].fill_(-16.0)
    return agent


def test_drawn_rows_and_steps_give_the_loss_of_all_on_average() -> None:
    batch = batch_of()
    whole, drawn = certain(make(kl_weight=0.0)), certain(make(kl_weight=0.0, rows=1, steps=2))
    expected = infer(whole, batch)[0].item()
    found = np.array([infer(drawn, batch, seed)[0].item() for seed in range(1000)])
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found)) < 0.05 * expected
    assert found.std() > 0.05 * expected, "they differ"


def test_rows_train_and_steps_belong_to_their_trial_and_none_is_drawn_twice() -> None:
    agent, batch = make(rows=2, steps=3), batch_of()
    _, inference = part_of(agent)
    drawn_rows, drawn_steps = set(), set()
    for seed in range(30):
        draws = torch.Generator().manual_seed(seed)
        rows = inference._draw_rows(batch, draws)
        arrivals, drawn, steps = inference._draw_steps(batch, rows, draws)
        assert len(rows.unique()) == len(rows) == 2 * batch.shape[1]
        for number, row in enumerate(rows.tolist()):
            time, column = divmod(row, batch.shape[1])
            possible = [step * batch.shape[1] + column for step in steps_of(batch, time, column)]
            found = arrivals[number][drawn[number]].tolist()
            assert batch.trains[time, column] and steps[number] == len(possible)
            assert len(found) == len(set(found)) == min(3, len(possible)) and set(found) <= set(possible)
            drawn_steps |= {(row, step) for step in found}
            drawn_rows.add(row)
    assert drawn_rows == set(batch.trains.flatten().nonzero()[:, 0].tolist())
    assert len(drawn_steps) > 100


def test_the_first_row_of_a_window_inside_a_trial_has_no_belief_before_it_and_is_not_drawn() -> None:
    replay, (_, inference) = make_replay(capacity=9), part_of(make())
    play(replay, make_trials(4, 9, scale=1e-3), num_slots=2)
    batch = replay.sample(
        Needs(on_policy=False, sample=Sample.windows, batch_size=32, window=3), np.random.default_rng(0)
    )
    inside = batch.trains[0] & ~batch.trial_start[0]
    rows = inference._draw_rows(batch, torch.Generator())
    assert inside.any() and (batch.trains[0] & ~inside).any()
    assert len(rows) == int(batch.trains.sum() - inside.sum())
    assert not inside[rows[rows < 32]].any()
    assert infer(
        make(),
        replay.sample(
            Needs(on_policy=False, sample=Sample.windows, batch_size=4, window=1), np.random.default_rng(0)
        ),
    )[0].isfinite()


def test_draws_are_a_function_of_the_seed() -> None:
    agent, batch = make(rows=2, steps=3), batch_of()
    state = torch.get_rng_state()
    first, same, other = (infer(agent, batch, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, same) and not torch.equal(first, other)


# -- who sees whom -------------------------------------------------------------------------------------------


def spoilt(batch: Batch, where: Tensor) -> Batch:
    assert isinstance(batch.obs, Tensor)
    numbers = {
        name: torch.where(where[..., None], 3.0, getattr(batch, name))
        for name in ("obs", "action", "prev_action")
    }
    return replace(batch, reward=torch.where(where, 7.0, batch.reward), **numbers)


@every_decoding
def test_neither_columns_nor_the_trials_of_a_column_see_each_other(decode: Decodes) -> None:
    agent, batch = make(decode=decode), batch_of()
    trial = batch.trial_start.cumsum(0)
    column = int((trial.max(0).values > 1).nonzero()[0])
    second = torch.zeros_like(batch.trains)
    second[:, column] = trial[:, column] == 2
    alone = replace(batch, trains=batch.trains & second)
    before = infer(agent, alone)[0]
    assert torch.equal(before, infer(agent, spoilt(alone, ~second & batch.valid))[0])
    for time in second[:, column].nonzero()[:, 0].tolist():
        if batch.valid[time, column]:
            here = torch.zeros_like(second)
            here[time, column] = True
            assert not torch.equal(before, infer(agent, spoilt(alone, here))[0]), (
                "and every row of the trial is felt"
            )


@pytest.mark.parametrize("memory", MEMORIES)
@every_decoding
def test_the_gradient_reaches_the_memory_and_what_predicts_and_nothing_else(
    memory: str, decode: Decodes
) -> None:
    agent = make(memory=memory, decode=decode)
    network, inference = part_of(agent)
    infer(agent, batch_of())[0].backward()
    reached = {
        id(parameter)
        for parameter in agent.parameters()
        if parameter.grad is not None and parameter.grad.any()
    }
    expected = {id(parameter) for part in (network.branch, inference) for parameter in part.parameters()}
    assert reached <= expected
    # A unit that is dead on these few rows may have no gradient; a layer always has some.
    assert {id(parameter) for parameter in inference.parameters()} <= reached
    assert len(reached) > 0.7 * len(expected)


@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
@every_reading
def test_through_a_belief_no_head_reaches_the_memory(encoders: Encoders, heads_read: HeadsRead) -> None:
    agent, batch = make(encoders=encoders, heads_read=heads_read), batch_of()
    outputs = agent.unroll(batch)
    (
        outputs.policy.log_prob(batch.action).sum() + agent.critic.head(outputs.critic, batch.action).sum()
    ).backward()
    memories = [
        parameter for network in (agent.actor, agent.critic) for parameter in network.branch.parameters()
    ]
    assert any(parameter.grad is not None for parameter in memories) == (heads_read is HeadsRead.features)
    assert all(
        parameter.grad is None
        for network in (agent.actor, agent.critic)
        for parameter in part_parameters(network)
    )
    assert outputs.critic.context.shape[-1] == (6 if heads_read is HeadsRead.features else 10)


def part_parameters(network: Network) -> list[torch.nn.Parameter]:
    assert network.inference is not None
    return list(network.inference.parameters())


def test_heads_read_mean_and_log_variance_as_they_act_and_as_they_learn() -> None:
    agent, batch = make(heads_read=HeadsRead.belief), batch_of()
    network, inference = part_of(agent)
    seen = network.unroll(agent.normalise(batch))
    assert seen.memory is not None and seen.memory.requires_grad and not seen.context.requires_grad
    assert torch.equal(seen.context, inference.belief(seen.memory))
    other = Features(seen.context + 1, seen.obs)
    assert not torch.equal(network.head(seen, batch.action), network.head(other, batch.action))


@pytest.mark.parametrize("memory", MEMORIES)
def test_acting_step_by_step_on_beliefs_is_what_unrolling_says(memory: str) -> None:
    agent = make(memory=memory, heads_read=HeadsRead.belief)
    agent.extras = ("log_prob",)
    replay, said = acted(agent, num_slots=3)
    batch = trials_of(replay)
    log_prob = agent.unroll(batch).policy.log_prob(batch.action)
    assert len({round(value[0], 3) for value in said.values()}) > 10
    for time, column in batch.valid.nonzero().tolist():
        trial = round(batch.reward[1, column].item() / (1000 * SCALE))  # the first reward of trial 6 is 6001
        assert log_prob[time, column].item() == pytest.approx(said[trial, time][0], abs=TOLERANCE)

"""What every algorithm promises, for all that are registered and all architectures."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.base import Batch
from buffers.replay import Replay
from buffers.rollout import RolloutBuffer
from policies.agents import AGENT_ARCHS
from policies.agents.actions import ActionKind, actions_of
from policies.agents.base import AgentConfig, Arch, Conditioning
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from tests.policies.agents.test_agent import SCALE, acted, trials_of
from tests.trials import KINDS, make_replay, make_spec, make_trials, play

SERVED = [
    (name, kind)
    for name in ALGORITHMS
    for kind in KINDS
    if actions_of(KINDS[kind].action_space).kind in ALGORITHMS[name].serves
]
every_algorithm = pytest.mark.parametrize(("name", "kind"), SERVED)
COMBINATIONS = [
    pytest.param(name, kind, arch, id=f"{name}-{kind}-{arch.name}")
    for name, kind in SERVED
    for arch in AGENT_ARCHS
    if not any(ALGORITHMS[name].problems(ALGORITHMS[name].Config(name=name), AgentConfig(arch=arch)))
]
every_combination = pytest.mark.parametrize(("name", "kind", "arch"), COMBINATIONS)
CONDITIONED = [
    pytest.param(
        name,
        kind,
        arch,
        {"conditioning": conditioning, "hyper_embedding": 3},
        id=f"{name}-{kind}-{arch.name}-{conditioning.name}",
    )
    for name, kind in SERVED
    for arch in (Arch.Memory, Arch.Memory_Markov)
    for conditioning in (Conditioning.film, Conditioning.hypernetwork)
    if kind in ("continuous", "discrete")
    if not any(
        ALGORITHMS[name].problems(
            ALGORITHMS[name].Config(name=name), AgentConfig(arch=arch, conditioning=conditioning)
        )
    )
]
every_combination_and_conditioning = pytest.mark.parametrize(
    ("name", "kind", "arch", "changes"),
    [*(pytest.param(*one.values, {}, id=one.id) for one in COMBINATIONS), *CONDITIONED],
)


def make(name: str, kind: str, arch: Arch, *, seed: int = 0, **changes: Any) -> Algorithm:
    algorithm = ALGORITHMS[name]
    config = algorithm.Config(name=name)
    return algorithm(
        config,
        algorithm.make_agent(config, replace(make_spec(arch, kind=KINDS[kind], **changes), seed=seed)),
        seed=seed,
    )


def batch_for(algorithm: Algorithm, kind: str, seed: int = 0) -> Batch:
    """What the algorithm asks for, from trials with falls."""
    needs = type(algorithm).needs(type(algorithm).Config(name=""), algorithm.agent.arch)
    replay = make_replay(capacity=9, kind=KINDS[kind], storage=RolloutBuffer if needs.on_policy else Replay)
    play(
        replay,
        make_trials(4 + seed * needs.on_policy, 9, fall=0.3, scale=1e-3),
        num_slots=2,
        kind=KINDS[kind],
    )
    return replay.sample(needs, np.random.default_rng(seed))


def parameters(algorithm: Algorithm) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in algorithm.agent.named_parameters()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@every_combination_and_conditioning
def test_three_updates_move_every_parameter_of_the_agent(
    name: str, kind: str, arch: Arch, changes: dict[str, Any]
) -> None:
    algorithm = make(
        name, kind, arch, reward_embedding=12, **changes
    )  # so that some of its units are alive at all rewards
    before = parameters(algorithm)
    for seed in range(3):
        metrics = algorithm.update(batch_for(algorithm, kind, seed))
        assert metrics
        for key, value in metrics.items():
            assert value.shape == () and not value.requires_grad and value.isfinite(), key
    after = parameters(algorithm)
    assert [key for key in before if torch.equal(before[key], after[key])] == []
    assert all(value.isfinite().all() for value in after.values())


def spoilt_in(batch: Batch, rows: torch.Tensor, rubbish: float) -> Batch:
    """Rubbish in these rows; a choice stays a choice, since a critic has no number for any other."""

    def spoil(values: torch.Tensor) -> torch.Tensor:
        if not values.is_floating_point():
            return values.where(
                ~rows.reshape(*batch.shape, *[1] * (values.dim() - 2)), 1 - values.clamp(max=1)
            )
        return values.masked_fill(rows.reshape(*batch.shape, *[1] * (values.dim() - 2)), rubbish)

    obs = (
        {key: spoil(part) for key, part in batch.obs.items()}
        if isinstance(batch.obs, dict)
        else spoil(batch.obs)
    )
    action = batch.action if not batch.action.is_floating_point() else spoil(batch.action)
    return replace(
        batch, obs=obs, reward=spoil(batch.reward), action=action, prev_action=spoil(batch.prev_action)
    )


@every_combination
@pytest.mark.parametrize("rubbish", [-3.0, 1e6])
def test_padding_influences_nothing(name: str, kind: str, arch: Arch, rubbish: float) -> None:
    results = []
    for spoil, valid_too in ((False, False), (True, False), (True, True)):
        algorithm = make(name, kind, arch)
        batch = batch_for(algorithm, kind)
        assert not batch.valid.all()
        if spoil:
            batch = spoilt_in(batch, ~batch.valid | batch.trains if valid_too else ~batch.valid, rubbish)
        metrics = algorithm.update(batch)
        results.append((metrics, parameters(algorithm)))
    clean, padded, spoilt = results
    assert equal(clean[0], padded[0])
    assert equal(clean[1], padded[1])
    assert not equal(clean[1], spoilt[1]), "the same in rows that count is felt"


@every_combination_and_conditioning
def test_a_state_dict_carries_on_bit_for_bit_through_a_file_without_pickled_code(
    name: str, kind: str, arch: Arch, changes: dict[str, Any]
) -> None:
    algorithm = make(name, kind, arch, **changes)
    for seed in range(2):
        algorithm.update(batch_for(algorithm, kind, seed))
    file = io.BytesIO()
    torch.save(algorithm.state_dict(), file)
    file.seek(0)
    other = make(name, kind, arch, seed=7, **changes)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert equal(parameters(algorithm), parameters(other))
    for seed in (5, 6):
        assert equal(
            algorithm.update(batch_for(algorithm, kind, seed)), other.update(batch_for(other, kind, seed))
        )
        assert equal(parameters(algorithm), parameters(other))
    unlike = make(name, kind, arch, seed=7, **changes)
    unlike.agent.load_state_dict(algorithm.agent.state_dict())
    unlike.update(batch_for(unlike, kind, 8))
    algorithm.update(batch_for(algorithm, kind, 8))
    assert not equal(parameters(algorithm), parameters(unlike)), "the parameters alone are not enough"


@every_algorithm
def test_an_update_is_a_function_of_the_seed(name: str, kind: str) -> None:
    first, same, other = (make(name, kind, Arch.Memory, seed=seed) for seed in (0, 0, 1))
    for algorithm in (first, same, other):
        algorithm.update(batch_for(algorithm, kind))
    assert equal(parameters(first), parameters(same))
    assert not equal(parameters(first), parameters(other))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_actions_that_it_cannot_serve_are_refused_in_one_sentence(name: str) -> None:
    kind = ALGORITHMS[name]
    unserved = {
        ActionKind.continuous: KINDS["continuous"].action_space,
        ActionKind.discrete: spaces.Discrete(4),
        ActionKind.multi_discrete: spaces.MultiDiscrete([2, 3]),
    }
    for space in [space for action_kind, space in unserved.items() if action_kind not in kind.serves]:
        with pytest.raises(
            ValueError, match=rf"{name} learns [\w-]+ actions, not {re.escape(str(space))}\.$"
        ):
            kind.make_agent(kind.Config(name=name), replace(make_spec(Arch.Memory), action_space=space))
    grid = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))
    with pytest.raises(ValueError, match="a vector of real numbers, one of n actions or several of them"):
        kind.make_agent(kind.Config(name=name), replace(make_spec(Arch.Memory), action_space=grid))


def test_every_kind_of_action_has_an_algorithm() -> None:
    assert {kind for algorithm in ALGORITHMS.values() for kind in algorithm.serves} == set(ActionKind)


@every_combination
def test_a_batch_needs_no_particular_shape(name: str, kind: str, arch: Arch) -> None:
    """The shortest trials, and one column."""
    algorithm, replay = make(name, kind, arch), make_replay(capacity=1, k=1, horizon=1, kind=KINDS[kind])
    play(replay, make_trials(0, 1, k=1, horizon=1), num_slots=1, kind=KINDS[kind])
    needs = replace(type(algorithm).needs(type(algorithm).Config(name=name), arch), batch_size=1)
    assert all(
        value.isfinite()
        for value in algorithm.update(replay.sample(needs, np.random.default_rng(0))).values()
    )


@every_combination
@pytest.mark.parametrize("deterministic", [False, True])
def test_acting_step_by_step_is_what_unrolling_says(
    name: str, kind: str, arch: Arch, deterministic: bool
) -> None:
    """Log-probabilities of what was done; and without noise, what is done itself."""
    algorithm = make(name, kind, arch)
    algorithm.agent.extras = ("log_prob",)
    replay, recorded = acted(algorithm.agent, num_slots=3, deterministic=deterministic, kind=KINDS[kind])
    batch = trials_of(replay)
    policy = algorithm.agent.unroll(batch).policy
    log_prob, mode = policy.log_prob(batch.action), policy.mode()
    for t, column in batch.valid.nonzero().tolist():
        # the first reward of trial 6 is 6001
        value, action = recorded[round(batch.reward[1, column].item() / (1000 * SCALE)), t]
        assert log_prob[t, column].item() == pytest.approx(value, abs=1e-3)
        if deterministic:
            np.testing.assert_allclose(mode[t, column].detach().numpy(), action, atol=1e-5)

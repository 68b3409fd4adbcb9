"""What every algorithm promises, for all that are registered and all architectures."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from buffers.base import Batch
from policies.agents import AGENT_ARCHS
from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from tests.trials import make_replay, make_spec, make_trials, play

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)


def make(name: str, arch: Arch, *, seed: int = 0) -> Algorithm:
    kind = ALGORITHMS[name]
    config = kind.Config(name=name)
    return kind(config, kind.make_agent(config, make_spec(arch)), seed=seed)


def batch_for(algorithm: Algorithm, seed: int = 0) -> Batch:
    """What the algorithm asks for, from trials with falls."""
    replay = make_replay(capacity=9)
    play(replay, make_trials(4, 9, fall=0.3, scale=1e-3), num_slots=2)
    needs = type(algorithm).needs(type(algorithm).Config(name=""), algorithm.agent.arch)
    return replay.sample(needs, np.random.default_rng(seed))


def parameters(algorithm: Algorithm) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in algorithm.agent.named_parameters()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@every_algorithm
@every_arch
def test_three_updates_move_every_parameter_of_the_agent(name: str, arch: Arch) -> None:
    algorithm = make(name, arch)
    before = parameters(algorithm)
    for seed in range(3):
        metrics = algorithm.update(batch_for(algorithm, seed))
        assert metrics
        for key, value in metrics.items():
            assert value.shape == () and not value.requires_grad and value.isfinite(), key
    after = parameters(algorithm)
    assert [key for key in before if torch.equal(before[key], after[key])] == []
    assert all(value.isfinite().all() for value in after.values())


@every_algorithm
@every_arch
@pytest.mark.parametrize("rubbish", [float("nan"), 1e6])
def test_padding_influences_nothing(name: str, arch: Arch, rubbish: float) -> None:
    results = []
    for spoil, valid_too in ((False, False), (True, False), (True, True)):
        algorithm = make(name, arch)
        batch = batch_for(algorithm)
        assert isinstance(batch.obs, torch.Tensor)
        assert not batch.valid.all()
        if spoil:
            idle = ~batch.valid if not valid_too else ~batch.valid | batch.trains
            wide = idle[..., None]
            batch = replace(
                batch,
                obs=batch.obs.masked_fill(wide, rubbish),
                reward=batch.reward.masked_fill(idle, rubbish),
                action=batch.action.masked_fill(wide, rubbish),
                prev_action=batch.prev_action.masked_fill(wide, rubbish),
            )
        metrics = algorithm.update(batch)
        results.append((metrics, parameters(algorithm)))
    clean, padded, spoilt = results
    assert equal(clean[0], padded[0])
    assert equal(clean[1], padded[1])
    assert not equal(clean[1], spoilt[1]), "the same in rows that count is felt"


@every_algorithm
@every_arch
def test_a_state_dict_carries_on_bit_for_bit_through_a_file_without_pickled_code(name: str, arch: Arch) -> None:
    algorithm = make(name, arch)
    for seed in range(2):
        algorithm.update(batch_for(algorithm, seed))
    file = io.BytesIO()
    torch.save(algorithm.state_dict(), file)
    file.seek(0)
    other = make(name, arch, seed=7)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert equal(parameters(algorithm), parameters(other))
    for seed in (5, 6):
        assert equal(algorithm.update(batch_for(algorithm, seed)), other.update(batch_for(other, seed)))
        assert equal(parameters(algorithm), parameters(other))
    unlike = make(name, arch, seed=7)
    unlike.agent.load_state_dict(algorithm.agent.state_dict())
    unlike.update(batch_for(unlike, 8))
    algorithm.update(batch_for(algorithm, 8))
    assert not equal(parameters(algorithm), parameters(unlike)), "the parameters alone are not enough"


@every_algorithm
def test_an_update_is_a_function_of_the_seed(name: str) -> None:
    first, same, other = (make(name, Arch.Memory, seed=seed) for seed in (0, 0, 1))
    for algorithm in (first, same, other):
        algorithm.update(batch_for(algorithm))
    assert equal(parameters(first), parameters(same))
    assert not equal(parameters(first), parameters(other))


@every_algorithm
def test_an_action_space_that_it_cannot_serve_is_refused_in_one_sentence(name: str) -> None:
    kind = ALGORITHMS[name]
    with pytest.raises(ValueError, match=r"continuous actions, not for Discrete\(4\)\.$"):
        kind.make_agent(kind.Config(name=name), replace(make_spec(Arch.Memory), action_space=spaces.Discrete(4)))


@every_algorithm
@every_arch
def test_a_batch_needs_no_particular_shape(name: str, arch: Arch) -> None:
    """The shortest trials, and one column."""
    algorithm, replay = make(name, arch), make_replay(capacity=1, k=1, horizon=1)
    play(replay, make_trials(0, 1, k=1, horizon=1), num_slots=1)
    needs = replace(type(algorithm).needs(type(algorithm).Config(name=name), arch), batch_size=1)
    assert all(value.isfinite() for value in algorithm.update(replay.sample(needs, np.random.default_rng(0))).values())

"""Every algorithm trains the memories of its agent to infer the task, where that is asked for: whom it moves,
its draws, and its threads.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from buffers.base import Batch
from policies.agents import AGENT_ARCHS
from policies.agents.base import AgentConfig, Arch, Decodes, Encoders, HeadsRead, TaskInferenceConfig
from policies.algorithms import ALGORITHMS
from policies.algorithms.base import Algorithm
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.ppo import PPO
from tests.policies.algorithms.test_algorithms import batch_for, equal, make, parameters, spoilt_in
from utils import parallel

KIND = {name: kind.serves[0].value for name, kind in ALGORITHMS.items()}
EVERYTHING: dict[str, Any] = {"decode": Decodes.reward_and_transition, "heads_read": HeadsRead.belief}


def can_learn(name: str, agent: AgentConfig) -> bool:
    """Whether this algorithm, with its default options, accepts these options of the agent."""
    algorithm = ALGORITHMS[name]
    return not any((*agent.problems(), *algorithm.problems(algorithm.Config(name=name), agent)))


COMBINATIONS = [
    pytest.param(
        name,
        arch,
        encoders,
        options,
        id=f"{name}-{arch.name}-{encoders.name}-{'belief' if options else 'features'}",
    )
    for name in ALGORITHMS
    for arch in AGENT_ARCHS
    for encoders in Encoders
    for options in ({}, EVERYTHING)
    if arch is not Arch.Markov and can_learn(name, AgentConfig(arch=arch, encoders=encoders))
]
every_combination = pytest.mark.parametrize(("name", "arch", "encoders", "options"), COMBINATIONS)
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def inferring(
    name: str,
    arch: Arch = Arch.Memory,
    *,
    encoders: Encoders = Encoders.separate,
    seed: int = 0,
    **options: Any,
) -> Algorithm:
    inference = TaskInferenceConfig(**({"weight": 1.0, "rows": 3, "steps": 4, "hidden": [16]} | options))
    asked = None if name == "DQN" else encoders  # which it refuses to have separate
    return make(
        name, KIND[name], arch, seed=seed, encoders=asked, task_inference=inference, reward_embedding=12
    )


def batch_of(algorithm: Algorithm, seed: int = 0) -> Batch:
    return batch_for(algorithm, KIND[type(algorithm).__name__], seed)


@every_combination
def test_three_updates_move_every_parameter_and_report_what_is_inferred(
    name: str, arch: Arch, encoders: Encoders, options: dict[str, Any]
) -> None:
    algorithm = inferring(name, arch, encoders=encoders, **options)
    before, names = parameters(algorithm), []
    for seed in range(3):
        metrics = algorithm.update(batch_of(algorithm, seed))
        assert all(
            value.shape == () and value.isfinite() and not value.requires_grad for value in metrics.values()
        )
        names.append(metrics.keys())
    assert names[0] == names[1] == names[2]
    after = parameters(algorithm)
    assert [key for key in before if torch.equal(before[key], after[key])] == []
    alone = algorithm.agent.shares or arch is Arch.Memory_Markov
    parts = {"elbo", "reward_error", "belief_kl", *(["transition_error"] if options else [])}
    assert {
        f"{owner}_{part}" for owner in (["critic"] if alone else ["actor", "critic"]) for part in parts
    } <= names[0]
    assert alone == ("actor_elbo" not in names[0])


@every_combination
def test_a_state_dict_carries_on_bit_for_bit(
    name: str, arch: Arch, encoders: Encoders, options: dict[str, Any]
) -> None:
    algorithm, other = (inferring(name, arch, encoders=encoders, seed=seed, **options) for seed in (0, 7))
    algorithm.update(batch_of(algorithm))
    file = io.BytesIO()
    torch.save(algorithm.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for seed in (5, 6):
        assert equal(algorithm.update(batch_of(algorithm, seed)), other.update(batch_of(other, seed)))
    assert equal(parameters(algorithm), parameters(other))


@every_algorithm
def test_padding_influences_nothing(name: str) -> None:
    results = []
    for rubbish in (None, -3.0, 1e6):
        algorithm = inferring(name, decode=Decodes.reward_and_transition)
        batch = batch_of(algorithm)
        assert not batch.valid.all()
        metrics = algorithm.update(batch if rubbish is None else spoilt_in(batch, ~batch.valid, rubbish))
        results.append(metrics | parameters(algorithm))
    assert equal(results[0], results[1]) and equal(results[0], results[2])


@every_algorithm
def test_in_one_thread_and_in_two_the_bits_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "FEWEST_ROWS", 0)
    results = []
    for cores in (1, 2, 2):
        monkeypatch.setattr(parallel, "available_cores", lambda cores=cores: cores)
        algorithm = inferring(name)
        results.append({})
        for seed in range(3):
            results[-1] |= algorithm.update(batch_of(algorithm, seed))
        results[-1] |= parameters(algorithm)
    assert equal(results[0], results[1]) and equal(results[0], results[2])


@every_algorithm
def test_draws_follow_from_the_algorithm_s_seed_and_leave_the_global_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first, same, other = (inferring(name, seed=0) for _ in range(3))
    generator = other.generator  # pyright: ignore[reportAttributeAccessIssue]
    generator.manual_seed(99)
    results = [algorithm.update(batch_of(algorithm)) for algorithm in (first, same, other)]
    assert torch.equal(state, torch.get_rng_state())
    assert equal(results[0], results[1])
    assert results[0]["critic_elbo"] != results[2]["critic_elbo"]


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)])
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_the_loss_of_who_owns_a_memory_is_the_sum_of_its_own_and_of_what_is_inferred(
    name: str, encoders: Encoders
) -> None:
    """Whatever the weight, all that is drawn is the same, and so is the rest of the loss."""
    found = []
    for weight in (2.0, 1e-9):
        algorithm = inferring(name, encoders=encoders, weight=weight, rows=None, steps=None)
        found.append(algorithm.update(batch_of(algorithm)))
    for owner in ("critic", "actor"):
        if f"{owner}_elbo" in found[0]:
            difference = found[0][f"{owner}_loss"] - found[1][f"{owner}_loss"]
            torch.testing.assert_close(difference, -2.0 * found[0][f"{owner}_elbo"], rtol=1e-3, atol=1e-5)
        elif f"{owner}_loss" in found[0]:
            assert torch.equal(found[0][f"{owner}_loss"], found[1][f"{owner}_loss"])


@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_the_parts_of_a_minibatch_add_up_to_what_all_of_it_infers(encoders: Encoders) -> None:
    """Beliefs are certain and all rows and steps are taken, so that only the numbers of rows in the parts are
    left to be wrong.
    """
    algorithm = inferring("PPO", encoders=encoders, rows=None, steps=None, kl_weight=0.0, weight=3.0)
    assert isinstance(algorithm, PPO)
    batch = algorithm.agent.normalise(batch_of(algorithm))
    batch = replace(
        batch,
        extras={
            name: torch.zeros_like(batch.reward) for name in ("log_prob", "advantage", "value", "target")
        },
    )
    with torch.no_grad():
        for network in {algorithm.agent.actor, algorithm.agent.critic}:
            assert network.inference is not None
            network.inference.belief.bias[5:].fill_(-30.0)
    total, columns = batch.trains.sum(), torch.arange(batch.shape[1])
    losses, metrics = algorithm._losses(batch, total)
    parts = [
        algorithm._losses(batch.columns(part), total, seed)
        for seed, part in enumerate(columns.split([1, len(columns) - 1]))
    ]
    for first, second, whole in zip(parts[0][0], parts[1][0], losses, strict=True):
        torch.testing.assert_close(first + second, whole)
    for name, value in metrics.items():
        torch.testing.assert_close(parts[0][1][name] + parts[1][1][name], value)
    plain = metrics["policy_loss"] + 0.5 * metrics["value_loss"] - 0.002 * metrics["entropy"]
    elbo = sum((value for name, value in metrics.items() if name.endswith("elbo")), torch.zeros(()))
    torch.testing.assert_close(losses[0], plain)
    torch.testing.assert_close(losses[1], -3.0 * elbo)


def test_a_large_gradient_of_the_inference_does_not_take_the_clip_from_the_policy() -> None:
    """The policy's head gets no gradient of the inference, so its own must be the same beside a small one."""
    found: list[list[Tensor]] = []
    for weight in (1e-3, 1e4):
        algorithm = inferring("PPO", weight=weight)
        assert isinstance(algorithm, PPO)
        batch = algorithm._with_targets(algorithm.agent.normalise(batch_of(algorithm)))
        metrics = algorithm._step(batch, torch.arange(batch.shape[1]))
        assert (metrics["inference_grad_norm"] > 1.0) == (weight > 1)
        head = algorithm.agent.actor.head.parameters()
        found.append([parameter.grad for parameter in head if parameter.grad is not None])
    for small, large in zip(*found, strict=True):
        torch.testing.assert_close(small, large)


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {key for key in before if not torch.equal(before[key], after[key])}


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)])
def test_targets_ask_a_belief_that_follows(name: str) -> None:
    algorithm = inferring(name, heads_read=HeadsRead.belief)
    assert isinstance(algorithm, OffPolicy)
    before = {key: value.clone() for key, value in algorithm.target_critic.state_dict().items()}
    algorithm.update(batch_of(algorithm))
    assert {key for key in before if key.startswith("inference.belief")} <= changed(
        before, algorithm.target_critic.state_dict()
    )

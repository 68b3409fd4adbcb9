"""What soft actor-critics add: a temperature, fixed or tuned, whose entropy is part of every value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.agents import AGENT_ARCHS
from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.algorithms.soft_actor_critic import SoftActorCritic
from policies.algorithms.transitions import transitions_of
from tests.policies.algorithms.test_off_policy import batch_for, copies, make, moved

every_name = pytest.mark.parametrize(
    "name", [name for name, kind in ALGORITHMS.items() if issubclass(kind, SoftActorCritic)]
)
every_arch = pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)


def made(name: str, arch: Arch, **options: Any) -> SoftActorCritic:
    algorithm = make(name, arch, **options)
    assert isinstance(algorithm, SoftActorCritic)
    return algorithm


@every_name
def test_a_temperature_that_is_given_stays_and_one_that_is_not_moves(name: str) -> None:
    for options, stays in (({"temperature": 0.3}, True), ({"init_temperature": 0.3}, False)):
        algorithm = made(name, Arch.Markov, **options)
        before = copies(algorithm.agent.actor)
        metrics = algorithm.update(batch_for(algorithm))
        assert metrics["temperature"].item() == pytest.approx(0.3)
        assert (
            (algorithm.log_temperature.exp().item() == pytest.approx(0.3, abs=1e-6))
            == stays
            == ("temperature_grad_norm" not in metrics)
        )
        assert moved(algorithm.agent.actor, before)


@every_name
@every_arch
def test_the_temperature_s_loss_moves_the_temperature_only(name: str, arch: Arch) -> None:
    algorithm = made(name, arch)
    for owner in ("critic", "actor"):
        algorithm.optimizers[owner].param_groups[0]["lr"] = 0.0
    before, temperature = copies(algorithm.agent), algorithm.log_temperature.item()
    algorithm.update(batch_for(algorithm))
    assert not moved(algorithm.agent, before)
    assert algorithm.log_temperature.item() != temperature


@every_name
@every_arch
def test_targets_count_the_entropy_of_the_action_that_follows(name: str, arch: Arch) -> None:
    """y at one temperature differs from y at none by gamma c alpha log pi, exactly."""
    targets, surprises = [], []
    for alpha in (0.0, 0.5):
        algorithm = made(name, arch, discount=0.5)
        with torch.no_grad():
            algorithm.log_temperature.copy_(torch.tensor(alpha).log())
        soft_value = algorithm.soft_value

        def noting(*args: Any, soft_value: Any = soft_value) -> tuple[Tensor, Tensor]:
            value, log_prob = soft_value(*args)
            surprises.append(log_prob)
            return value, log_prob

        algorithm.soft_value = noting  # pyright: ignore[reportAttributeAccessIssue]
        batch = batch_for(algorithm)
        transitions = transitions_of(batch, algorithm.config)
        targets.append(algorithm.targets(batch, transitions, algorithm.agent.actor.unroll(batch)))
    assert torch.equal(*surprises) and surprises[0].abs().min() > 0
    torch.testing.assert_close(targets[1], targets[0] - 0.5 * 0.5 * transitions.bootstraps * surprises[0])  # pyright: ignore[reportPossiblyUnbound]
    assert not torch.equal(*targets)


@every_name
@every_arch
def test_the_losses_of_policy_and_temperature_are_those_of_the_formulas(name: str, arch: Arch) -> None:
    """J_pi = -E[V] and J(alpha) = -E[alpha (log pi + H)], with V and log pi as they were found (each tested
    by hand elsewhere).
    """
    algorithm = made(name, arch, init_temperature=0.3)
    batch, soft_value, found = batch_for(algorithm), algorithm.soft_value, []
    goal: Any = algorithm.target_entropy

    def noting(*args: Any) -> tuple[Tensor, Tensor]:
        found.append((*soft_value(*args), goal(args[1])))
        return found[-1][:2]

    algorithm.soft_value = noting  # pyright: ignore[reportAttributeAccessIssue]
    before = algorithm.log_temperature.item()
    metrics = algorithm.update(batch)
    value, log_prob, aimed = found[-1]
    assert len(value) == int(batch.trains.sum())
    assert metrics["actor_loss"].item() == pytest.approx(-value.mean().item(), rel=1e-5)
    assert metrics["temperature_loss"].item() == pytest.approx(
        -0.3 * (log_prob + aimed).mean().item(), rel=1e-5
    )
    assert algorithm.log_temperature.grad is not None
    assert algorithm.log_temperature.grad.item() == pytest.approx(
        metrics["temperature_loss"].item(), rel=1e-5
    ), "d exp(x) / dx = exp(x)"
    assert (algorithm.log_temperature.item() < before) == (metrics["temperature_loss"].item() > 0)


@every_name
def test_the_actor_climbs_the_smallest_where_all_count_and_the_mean_where_not(name: str) -> None:
    """The critics estimate constants, whatever the action."""
    for critics_in_target, expected in ((3, 1.0), (2, 2.0)):
        algorithm = made(name, Arch.Markov, critics=3, critics_in_target=critics_in_target, temperature=1e-9)
        for number, net in enumerate(algorithm.agent.critic.head.nets):  # pyright: ignore[reportArgumentType]
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.zero_()
                net.layers[-1].bias.fill_(1.0 + number)  # pyright: ignore[reportIndexIssue]
        assert algorithm.update(batch_for(algorithm))["actor_loss"].item() == pytest.approx(
            -expected, abs=1e-6
        )

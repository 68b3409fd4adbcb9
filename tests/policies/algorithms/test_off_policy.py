"""What off-policy algorithms share: which loss moves what, that targets follow, windows, and ensembles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from buffers.base import Batch
from policies.agents import AGENT_ARCHS
from policies.agents.base import AgentConfig, Arch, Encoders
from policies.agents.branches import MemoryBranch
from policies.algorithms import ALGORITHMS
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.off_policy_config import ActorCriticConfig, WindowStart
from policies.algorithms.transitions import HeadOnRows, transitions_of
from policies.memory.base import State
from tests.trials import KINDS, make_replay, make_spec, make_trials, play

NAMES = [name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicy)]
# The kind of actions that each is tested with here.
KIND = {name: kind.serves[0].value for name, kind in ALGORITHMS.items()}


def possible(name: str, arch: Arch, **options: Any) -> bool:
    return not any(
        ALGORITHMS[name].problems(ALGORITHMS[name].Config(name=name, **options), AgentConfig(arch=arch))
    )


every_name = pytest.mark.parametrize("name", NAMES)
with_policy = pytest.mark.parametrize(
    "name", [name for name in NAMES if issubclass(ALGORITHMS[name].Config, ActorCriticConfig)]
)
every_combination = pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, id=f"{name}-{arch.name}")
        for name in NAMES
        for arch in AGENT_ARCHS
        if possible(name, arch)
    ],
)


def make(name: str, arch: Arch, *, encoders: Encoders = Encoders.separate, **options: Any) -> OffPolicy:
    kind = ALGORITHMS[name]
    config = kind.Config(name=name, **options)
    asked = None if name == "DQN" else encoders  # DQN refuses separate encoders
    made = kind(
        config, kind.make_agent(config, make_spec(arch, kind=KINDS[KIND[name]], encoders=asked)), seed=0
    )
    assert isinstance(made, OffPolicy)
    return made


def batch_for(algorithm: OffPolicy, **changes: Any) -> Batch:
    kind = KINDS[KIND[type(algorithm).__name__]]
    needs = replace(algorithm.needs(algorithm.config, algorithm.agent.arch), **changes)
    replay = make_replay(capacity=9, kind=kind, state_every=needs.state_every)
    play(replay, make_trials(4, 9, fall=0.3, scale=1e-3), num_slots=2, kind=kind)
    return replay.sample(needs, np.random.default_rng(0))


def copies(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def moved(module: nn.Module, before: list[Tensor]) -> bool:
    return any(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))


def set_rate(algorithm: OffPolicy, owner: str, rate: float) -> None:
    for group in algorithm.optimizers[owner].param_groups:
        group["lr"] = rate


@every_combination
def test_each_loss_moves_its_own_parameters_only(name: str, arch: Arch) -> None:
    for alone in make(name, arch).optimizers:
        algorithm = make(name, arch)
        before = {
            owner: [one.detach().clone() for one in owned] for owner, owned in algorithm.parameters.items()
        }
        for owner in algorithm.optimizers:
            if owner != alone:
                set_rate(algorithm, owner, 0.0)
        algorithm.update(batch_for(algorithm))
        after = algorithm.parameters
        assert {
            owner
            for owner, old in before.items()
            if not all(torch.equal(*pair) for pair in zip(old, after[owner], strict=True))
        } == {alone}


@pytest.mark.parametrize(
    ("name", "arch", "encoders"),
    [
        pytest.param(name, arch, encoders, id=f"{name}-{arch.name}-{encoders.name}")
        for name in NAMES
        for arch in AGENT_ARCHS
        for encoders in Encoders
        if possible(name, arch) and (encoders is Encoders.separate or arch is not Arch.Memory_Markov)
    ],
)
def test_no_gradient_reaches_what_a_loss_does_not_own(name: str, arch: Arch, encoders: Encoders) -> None:
    """With only one backward pass done, only its owner has gradients; and every optimiser owns what no other
    owns.
    """
    owned = [
        id(parameter)
        for parameters in make(name, arch, encoders=encoders).parameters.values()
        for parameter in parameters
    ]
    assert len(owned) == len(set(owned))
    for alone in make(name, arch).optimizers:
        algorithm = make(name, arch, encoders=encoders)
        differentiate = algorithm._differentiate
        algorithm._differentiate = lambda owner, loss, f=differentiate, alone=alone: (
            f(owner, loss) if owner == alone else None
        )  # pyright: ignore[reportAttributeAccessIssue]
        algorithm._step = lambda owner: torch.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
        algorithm.update(batch_for(algorithm))
        with_gradient = {
            owner
            for owner, parameters in algorithm.parameters.items()
            if any(parameter.grad is not None for parameter in parameters)
        }
        assert with_gradient == {alone}
        assert all(parameter.grad is None for parameter in algorithm._targets.parameters())


@every_combination
def test_the_critic_that_the_policy_climbs_is_the_critic_but_takes_no_gradients(
    name: str, arch: Arch
) -> None:
    algorithm = make(name, arch)
    algorithm.update(batch_for(algorithm))
    algorithm.load_state_dict(algorithm.state_dict())
    pairs = zip(algorithm._frozen_view.parameters(), algorithm.agent.critic.head.parameters(), strict=True)
    assert all(
        mine.data_ptr() == theirs.data_ptr() and not mine.requires_grad and theirs.requires_grad
        for mine, theirs in pairs
    )


@every_combination
def test_all_gradients_are_taken_where_the_parameters_stood_before_the_update(name: str, arch: Arch) -> None:
    """So none of them depends on how far another optimiser has just stepped."""
    gradients = []
    for learning_rate in (1e-12, 0.5):
        algorithm = make(name, arch, learning_rate=learning_rate)
        algorithm.update(batch_for(algorithm))
        gradients.append([parameter.grad for owned in algorithm.parameters.values() for parameter in owned])
    assert all(torch.equal(small, large) for small, large in zip(*gradients, strict=True))


@every_name
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_the_agent_s_parameters_are_all_owned_and_what_is_shared_is_the_critic_s(
    name: str, encoders: Encoders
) -> None:
    algorithm = make(name, Arch.Memory, encoders=encoders)
    owned = {
        id(parameter) for owner in ("actor", "critic") for parameter in algorithm.parameters.get(owner, [])
    }
    assert owned == {id(parameter) for parameter in algorithm.agent.parameters()}
    if encoders is Encoders.shared:
        assert algorithm.agent.actor.branch is algorithm.agent.critic.branch
        assert {id(parameter) for parameter in algorithm.agent.critic.parameters()} == {
            id(parameter) for parameter in algorithm.parameters["critic"]
        }


@with_policy
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_a_shared_memory_is_read_once_for_the_agent_and_once_for_the_target(
    name: str, encoders: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, read = make(name, Arch.Memory, encoders=encoders), []
    unroll = MemoryBranch.unroll

    def noting(branch: MemoryBranch, *inputs: Any) -> tuple[Tensor, State]:
        read.append(branch)
        return unroll(branch, *inputs)

    monkeypatch.setattr(MemoryBranch, "unroll", noting)
    algorithm.update(batch_for(algorithm))
    assert (
        len(read)
        == len(set(read))
        == (2 if encoders is Encoders.shared else 4 if algorithm.target_policy else 3)
    )
    read.clear()
    if algorithm.policy_delay > 1 and encoders is Encoders.separate:
        algorithm.update(batch_for(algorithm))
        assert algorithm.agent.actor.branch not in read, "nothing needs the policy while it rests"


@every_combination
def test_the_targets_follow_by_tau(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, tau=0.25)
    for learns in (True, algorithm.policy_delay == 1):
        before = copies(algorithm._targets)
        algorithm.update(batch_for(algorithm))
        tau = 0.25 if learns or not algorithm.target_policy else 0.0
        for now, old, new in zip(
            algorithm._targets.parameters(), before, algorithm._online.parameters(), strict=True
        ):
            torch.testing.assert_close(now, (1 - tau) * old + tau * new)
    assert (
        algorithm.target_critic is algorithm._targets[0]
        and algorithm.target_critic.head is not algorithm.agent.critic.head
    )


@every_combination
def test_with_targets_and_noise_frozen_the_critic_s_loss_on_a_fixed_batch_falls(
    name: str, arch: Arch
) -> None:
    algorithm = make(name, arch, learning_rate=3e-3)
    for owner in algorithm.optimizers.keys() - {"critic"}:
        set_rate(algorithm, owner, 0.0)
    batch = batch_for(algorithm)
    noise = algorithm.generator.get_state()
    with torch.no_grad():
        algorithm.generator.set_state(noise)
        y = algorithm.targets(
            batch, transitions_of(batch, algorithm.config), algorithm.agent.actor.unroll(batch)
        )
    algorithm.targets = lambda *_: y  # pyright: ignore[reportAttributeAccessIssue]
    losses = [algorithm.update(batch)["critic_loss"].item() for _ in range(150)]
    assert losses[-1] < 0.5 * losses[0]
    assert all(after < 1.05 * before for before, after in zip(losses[:-10:10], losses[10::10], strict=False))


@every_combination
def test_the_critic_s_loss_is_the_mean_of_squared_errors(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, critics=3, critics_in_target=3)
    batch = batch_for(algorithm)
    y = torch.linspace(-1, 1, int(batch.trains.sum()))
    algorithm.targets = lambda *_: y  # pyright: ignore[reportAttributeAccessIssue]
    rows = transitions_of(batch, algorithm.config).rows
    with torch.no_grad():
        seen = algorithm.agent.critic.unroll(batch).select_rows(rows)
        q = algorithm.q_values(
            HeadOnRows(algorithm.agent.critic.head, seen), batch.action.flatten(0, 1)[rows]
        )
    expected = sum(float((one - y).square().mean()) for one in q) / 3
    assert algorithm.update(batch)["critic_loss"].item() == pytest.approx(expected, rel=1e-5)


@every_name
@pytest.mark.parametrize("window", [1, 4, 50])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_windows_train_as_well(name: str, window: int, burn_in: int) -> None:
    algorithm = make(name, Arch.Memory, window=window, burn_in=burn_in)
    batch = batch_for(algorithm)
    assert batch.shape[0] <= burn_in + window + 2
    before = copies(algorithm.agent.actor)
    algorithm.update(batch)
    assert moved(algorithm.agent.actor, before)


@every_name
@pytest.mark.parametrize("encoders", Encoders, ids=lambda encoders: encoders.name)
def test_windows_from_stored_states_train_and_all_who_remember_as_the_actor_read_them(
    name: str, encoders: Encoders
) -> None:
    algorithm = make(
        name, Arch.Memory, encoders=encoders, window=4, burn_in=2, window_start=WindowStart.stored
    )
    batch = batch_for(algorithm)
    assert batch.state is not None
    started = {
        "zero": replace(batch, state=None),
        "stored": replace(batch, state={"hidden": torch.rand(batch.shape[1], 6)}),
    }
    transitions = transitions_of(batch, algorithm.config)
    targets, q, seen = {}, {}, {}
    for start, one in started.items():
        state = algorithm.generator.get_state()
        (critic, q[start]), (_, targets[start]) = algorithm._forward(one, transitions, policy_learns=True)
        algorithm.generator.set_state(state)
        seen[start] = critic.context
    shared = algorithm.agent.shares  # DQN's actor is its critic
    assert torch.equal(q["zero"], q["stored"]) == torch.equal(seen["zero"], seen["stored"]) == (not shared)
    asks_policy = issubclass(type(algorithm).Config, ActorCriticConfig)
    assert torch.equal(targets["zero"], targets["stored"]) == (not shared and not asks_policy)
    before = copies(algorithm.agent.actor)
    algorithm.update(started["stored"])
    assert moved(algorithm.agent.actor, before)


@every_name
def test_gradients_are_clipped_on_demand(name: str) -> None:
    for limit, clipped in ((None, False), (1e-3, True)):
        algorithm = make(name, Arch.Memory, max_grad_norm=limit)
        metrics = algorithm.update(batch_for(algorithm))
        norm = nn.utils.get_total_norm(
            [
                parameter.grad
                for parameter in algorithm.agent.critic.parameters()
                if parameter.grad is not None
            ]
        )
        assert (norm.item() <= 1.01e-3) == clipped
        assert metrics["critic_grad_norm"].item() > 1e-3, "what is reported is the norm before"


# -- ensembles -----------------------------------------------------------------------------------------------


@every_combination
def test_an_ensemble_learns_in_every_part(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, critics=5, critics_in_target=2)
    head: Any = algorithm.agent.critic.head
    before = [copies(net) for net in head.nets]
    algorithm.update(batch_for(algorithm))
    assert [moved(net, old) for net, old in zip(head.nets, before, strict=True)] == 5 * [True]


@every_name
def test_targets_believe_the_smallest_of_a_subset_that_is_drawn_anew_by_the_algorithm_s_own_stream(
    name: str,
) -> None:
    algorithm = make(name, Arch.Markov, critics=4, critics_in_target=2)
    q = torch.tensor([[4.0], [3.0], [2.0], [1.0]])
    torch.manual_seed(0)
    drawn = [algorithm.min_q(q).item() for _ in range(300)]
    same = make(name, Arch.Markov, critics=4, critics_in_target=2)
    torch.manual_seed(1)
    assert drawn == [same.min_q(q).item() for _ in range(300)]
    counts = [drawn.count(value) for value in (1.0, 2.0, 3.0, 4.0)]
    assert counts[3] == 0 and all(
        abs(count - 300 * part) < 40 for count, part in zip(counts, (1 / 2, 1 / 3, 1 / 6, 0), strict=True)
    )
    assert make(name, Arch.Markov, critics=4, critics_in_target=4).min_q(q).item() == 1.0


# -- step sizes and delays -----------------------------------------------------------------------------------


@every_combination
def test_embeddings_and_memories_have_a_step_size_of_their_own_on_demand(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, encoder_learning_rate=1e-12)
    parts = [
        part
        for network in (algorithm.agent.actor, algorithm.agent.critic)
        for part in (network.encoder, network.branch)
    ]
    before, heads = (
        [copies(part) for part in parts],
        [copies(algorithm.agent.actor.head), copies(algorithm.agent.critic.head)],
    )
    algorithm.update(batch_for(algorithm))
    for one, was in zip(
        (one for part in parts for one in copies(part)), (was for old in before for was in old), strict=True
    ):
        torch.testing.assert_close(one, was, rtol=0, atol=1e-9)
    assert moved(algorithm.agent.actor.head, heads[0]) and moved(algorithm.agent.critic.head, heads[1])
    for owned, optimizer in (
        (algorithm.parameters[name], optimizer) for name, optimizer in algorithm.optimizers.items()
    ):
        assert {id(one) for group in optimizer.param_groups for one in group["params"]} == {
            id(one) for one in owned
        }


@every_combination
def test_the_same_step_size_in_two_groups_changes_nothing(name: str, arch: Arch) -> None:
    results = []
    for encoders_rate in (None, 3e-4):
        algorithm = make(name, arch, learning_rate=3e-4, encoder_learning_rate=encoders_rate)
        for _ in range(2):
            algorithm.update(batch_for(algorithm))
        results.append(copies(algorithm.agent))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@with_policy
@pytest.mark.parametrize("arch", AGENT_ARCHS, ids=lambda arch: arch.name)
def test_the_policy_learns_in_one_of_so_many_updates(name: str, arch: Arch) -> None:
    algorithm = make(name, arch, policy_delay=3)
    batch, learned, keys = batch_for(algorithm), [], []
    for _ in range(7):
        actor, critic = copies(algorithm.agent.actor), copies(algorithm.agent.critic)
        metrics = algorithm.update(batch)
        learned.append(moved(algorithm.agent.actor, actor))
        keys.append((set(metrics), metrics["actor_loss"].item()))
        assert moved(algorithm.agent.critic, critic)
    assert learned == [True, False, False, True, False, False, True]
    assert all(names == keys[0][0] for names, _ in keys), "a mean over updates needs a number in each"
    assert keys[0] == keys[1] == keys[2] != keys[3]

"""Conditioning: at first one ordinary network for all that is remembered, later another one for each; by
every head, and by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from policies.agents.actions import actions_of
from policies.agents.base import AgentConfig, Arch, Conditioning, Features
from policies.agents.conditioning import FiLM, GeneratedLayer, Hypernetwork
from policies.agents.heads import (
    DeterministicHead,
    GaussianHead,
    Head,
    HeadSizes,
    PolicyHead,
    QHead,
    QOfChoicesHead,
    ValueHead,
)
from policies.nn.mlp import MLP, Activation
from tests.trials import ACTION_SPACE

CONDITIONS = (Conditioning.film, Conditioning.hypernetwork)
every_condition = pytest.mark.parametrize("conditioning", CONDITIONS, ids=lambda one: one.name)

CHOICES = actions_of(spaces.Discrete(2))
HEADS: dict[str, Callable[[HeadSizes], Head]] = {
    "policy": lambda sizes: PolicyHead(sizes, actions_of(ACTION_SPACE)),
    "choices": lambda sizes: PolicyHead(sizes, CHOICES, last_gain=0.01),
    "gaussian": GaussianHead,
    "value": ValueHead,
    "deterministic": lambda sizes: DeterministicHead(sizes, actions_of(ACTION_SPACE)),
    "q": lambda sizes: QHead(sizes, 3),
    "q-of-choices": lambda sizes: QOfChoicesHead(sizes, 3),
}
every_head = pytest.mark.parametrize("name", HEADS)


def sizes_of(conditioning: Conditioning, **changes: Any) -> HeadSizes:
    return HeadSizes(
        **{
            "context": 5,
            "obs": 3,
            "action": 2,
            "shortcut": 4,
            "hidden": [8, 6],
            "conditioning": conditioning,
            "hyper": 3,
            **changes,
        }
    )


def some(rows: int = 7) -> tuple[Features, Tensor]:
    return Features(torch.randn(rows, 5), torch.randn(rows, 3)), torch.randn(rows, 2)


def outputs(head: Head, features: Features, action: Tensor) -> Tensor:
    """[networks, rows, ...] the numbers of any head, before they are a distribution."""
    return torch.stack(head.outputs(features, action if isinstance(head, QHead) else None))


def bases(head: nn.Module) -> list[MLP]:
    return [part for part in head.modules() if isinstance(part, MLP)]


def stir(module: nn.Module, deviation: float = 1.0) -> None:
    """As if it had learned: everything that begins with zeros does no more."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, (FiLM, GeneratedLayer)):
                for parameter in part.parameters(recurse=False):
                    parameter.normal_(std=deviation)


@every_head
@every_condition
def test_at_first_every_head_is_one_ordinary_network_of_the_current_row_whatever_is_remembered(
    name: str, conditioning: Conditioning
) -> None:
    torch.manual_seed(0)
    head = HEADS[name](sizes_of(conditioning))
    seen, action = some()
    first = outputs(head, seen, action)
    current = torch.cat([seen.obs, action], -1) if name == "q" else seen.obs
    row = torch.relu(head.embed[0](current))
    assert torch.equal(first, torch.stack([base(row) for base in bases(head)]))
    assert torch.equal(first, outputs(head, seen._replace(context=100 * torch.randn(7, 5)), action))
    assert not torch.equal(first, outputs(head, seen._replace(obs=seen.obs + 1), action))
    stir(head)
    learned = outputs(head, seen, action)
    assert not torch.allclose(first, learned)
    moved = outputs(head, seen._replace(context=seen.context + torch.eye(7)[:, :1]), action)
    same = (learned == moved).all(0).all(-1)
    assert same.tolist() == [False] + 6 * [True], "what is remembered at the first row changes that row alone"


@every_head
def test_beside_nothing_that_is_remembered_all_are_the_same_plain_network(name: str) -> None:
    seen, action = some()
    nothing = seen._replace(context=seen.context[:, :0])
    values = []
    for conditioning in Conditioning:
        torch.manual_seed(0)
        head = HEADS[name](sizes_of(conditioning, context=0))
        assert len(bases(head)) == (3 if name.startswith("q") else 1) and not any(
            isinstance(part, (FiLM, Hypernetwork)) for part in head.modules()
        )
        values.append(outputs(head, nothing, action))
    assert torch.equal(values[0], values[1]) and torch.equal(values[0], values[2])


@every_condition
def test_the_first_policy_hardly_depends_on_the_row_where_its_last_layer_begins_small(
    conditioning: Conditioning,
) -> None:
    seen, action = some(700)
    mean = outputs(GaussianHead(sizes_of(conditioning)), seen, action)
    assert 0 < mean.abs().max() < 0.2
    base = bases(GaussianHead(sizes_of(conditioning)))[0]
    _, (inner, _), (last, _) = base.applied
    torch.testing.assert_close(inner @ inner.T, 2 * torch.eye(6))
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(2))


@every_condition
@pytest.mark.parametrize("name", ["q", "q-of-choices"])
def test_each_network_of_an_ensemble_is_changed_by_weights_of_its_own(
    conditioning: Conditioning, name: str
) -> None:
    head = HEADS[name](sizes_of(conditioning))
    seen, action = some()
    before = outputs(head, seen, action)
    stir(head.get_submodule("nets.1"))
    after = outputs(head, seen, action)
    assert [torch.equal(one, other) for one, other in zip(before, after, strict=True)] == [True, False, True]


@pytest.mark.parametrize("activation", Activation)
def test_film_by_hand(activation: Activation) -> None:
    """One input, hidden layers of two and one, and two features."""
    net = FiLM(MLP(1, [2, 1], 1, activation), 2)
    with torch.no_grad():
        for (weight, bias), (w, b) in zip(
            net.base.applied,
            [([[1.0], [-2.0]], [0.5, 0.0]), ([[1.0, 3.0]], [0.25]), ([[2.0]], [1.0])],
            strict=True,
        ):
            weight.copy_(torch.tensor(w))
            bias.copy_(torch.tensor(b))
        # two scales and two shifts of the first layer, one and one of the second
        net.weight.copy_(
            torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0], [-1.0, 0.0], [0.5, 0.0], [0.0, -1.0]])
        )
    activate = torch.relu if activation is Activation.relu else torch.tanh
    f1, f2, x = torch.tensor([0.3, -0.4]), torch.tensor([-0.2, 0.1]), torch.tensor([0.7, -0.6])
    a = activate((1 + f1) * (x + 0.5) + f2)
    b = activate((1 + 2 * f2) * (-2 * x) - f1)
    c = activate((1 + 0.5 * f1) * (a + 3 * b + 0.25) - f2)
    torch.testing.assert_close(net(x[:, None], torch.stack([f1, f2], -1))[:, 0], 2 * c + 1)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("shape", [(3, [5], 2), (4, [4, 2], 1), (2, [], 3)], ids=str)
def test_a_hypernetwork_is_the_network_whose_weights_it_would_make(
    activation: Activation, size: int, shape: tuple[int, list[int], int]
) -> None:
    """Row by row, with the weights written out; layers that widen and that narrow take their sums in another
    order.
    """
    torch.manual_seed(1)
    net = Hypernetwork(MLP(*shape, activation), 3, size)
    stir(net)
    activate = torch.relu if activation is Activation.relu else torch.tanh
    x, features = torch.randn(2, 4, shape[0]), torch.randn(2, 4, 3)
    found = net(x, features)
    assert found.shape == (2, 4, shape[2])
    for t, column in torch.ones(2, 4).nonzero().tolist():
        code, y = features[t, column], x[t, column]
        if size == 1:  # no reduction where it would not reduce
            code = net.reduce[0](code)
        assert len(net.reduce) == (size == 1)
        for index, ((weight, bias), change) in enumerate(zip(net.base.applied, net.changes, strict=True)):
            assert isinstance(change, GeneratedLayer)
            rows, columns = weight.shape
            if columns < rows:  # [O, (F, I)] and [O, F]
                more, shift = (
                    torch.einsum("ofi,f->oi", change.weight.view(rows, -1, columns), code),
                    change.bias @ code,
                )
            else:  # [(F, O), I] and [(F, O)]
                more, shift = (
                    torch.einsum("foi,f->oi", change.weight.view(-1, rows, columns), code),
                    change.bias.view(-1, rows).T @ code,
                )
            y = (weight + more) @ y + bias + shift
            y = activate(y) if index < len(shape[1]) else y
        torch.testing.assert_close(found[t, column], y, rtol=1e-4, atol=1e-4)


def test_a_generated_layer_by_hand() -> None:
    """Two features; one input to two outputs, and two inputs to one."""
    wide, narrow = GeneratedLayer(2, 1, 2), GeneratedLayer(2, 2, 1)
    assert not any(parameter.any() for layer in (wide, narrow) for parameter in layer.parameters())
    features = torch.tensor([[2.0, -1.0]])
    with torch.no_grad():
        wide.weight.copy_(torch.tensor([[1.0, 10.0], [3.0, 0.0]]))
        wide.bias.copy_(torch.tensor([[0.0, 1.0], [5.0, 0.0]]))
        narrow.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        narrow.bias.copy_(torch.tensor([1.0, 0.5]))
    assert wide(torch.tensor([[3.0]]), features).tolist() == [[(2 - 10) * 3 - 1, 6 * 3 + 10]]
    assert narrow(torch.tensor([[3.0, 7.0]]), features).tolist() == [[(2 - 3) * 3 + (4 - 4) * 7 + 2 - 0.5]]


@every_condition
def test_every_parameter_has_a_gradient_once_the_first_update_is_made(conditioning: Conditioning) -> None:
    torch.manual_seed(0)
    head, context = Head(sizes_of(conditioning), 2), torch.randn(50, 5, requires_grad=True)
    optimizer = torch.optim.SGD(head.nets.parameters(), lr=0.1)
    reached = []
    for _ in range(2):
        optimizer.zero_grad()
        head.outputs(Features(context, torch.randn(50, 3)))[0].square().sum().backward()
        optimizer.step()
        assert context.grad is not None
        reached.append(bool(context.grad.any()))
    assert reached == [False, True], "what is remembered learns from the second update on"
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.nets.parameters())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"arch": Arch.Markov}, "agent=Markov has no memory"),
        ({"shortcut_embedding": 0}, "agent.shortcut_embedding=0 leaves out"),
        ({"arch": Arch.Memory_Markov, "shortcut_embedding": 0}, "agent.shortcut_embedding=0 leaves out"),
    ],
)
@every_condition
def test_what_cannot_be_conditioned_is_refused_in_one_sentence(
    conditioning: Conditioning, options: dict[str, Any], sentence: str
) -> None:
    (found,) = AgentConfig(**options, conditioning=conditioning).problems()
    assert found.startswith(f"agent.conditioning={conditioning.name} ") and sentence in found
    assert not list(AgentConfig(**options).problems())


def test_film_needs_a_hidden_layer_and_a_hypernetwork_none() -> None:
    (found,) = AgentConfig(hidden=[], conditioning=Conditioning.film).problems()
    assert "agent.hidden is empty" in found
    assert not list(AgentConfig(hidden=[], conditioning=Conditioning.hypernetwork).problems())
    assert not list(AgentConfig(arch=Arch.Memory_Markov, conditioning=Conditioning.film).problems())

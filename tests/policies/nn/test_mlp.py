"""MLP: its layers and activation by hand, its orthogonal start, and the list of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch

from policies.nn.mlp import MLP, Activation, linear_parameters


@pytest.mark.parametrize(
    ("activation", "activate"), [(Activation.relu, torch.relu), (Activation.tanh, torch.tanh)]
)
def test_the_activation_stands_between_the_layers_and_not_behind_the_last(
    activation: Activation, activate: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    net, x = MLP(3, [5], 2, activation), torch.randn(4, 3)
    first, last = net.layers
    torch.testing.assert_close(net(x), last(activate(first(x))))


def test_with_a_last_gain_layers_start_orthogonal_and_biases_at_zero() -> None:
    net = MLP(6, [6], 6, last_gain=0.01)
    (first, first_bias), (last, last_bias) = net.applied
    torch.testing.assert_close(first @ first.T, 2 * torch.eye(6))
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(6))
    assert not first_bias.any() and not last_bias.any()


def test_without_hidden_layers_it_is_one_linear_layer() -> None:
    net, x = MLP(3, [], 2), torch.randn(4, 3)
    torch.testing.assert_close(net(x), net.layers[0](x))


def test_the_listed_parameters_are_those_of_the_layers_in_a_copy_too() -> None:
    net = deepcopy(MLP(3, [5], 2))
    net.load_state_dict(MLP(3, [5], 2).state_dict())
    for (weight, bias), layer in zip(net.applied, net.layers, strict=True):
        assert weight is layer.weight and bias is layer.bias
    assert len(linear_parameters([*net.layers, torch.nn.ReLU()])) == 2

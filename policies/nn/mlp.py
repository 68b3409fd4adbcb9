"""MLP: linear layers with an activation between them, and the parameters of linear layers as a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

from policies.nn.dense import dense


class Activation(Enum):
    """The function between the layers of a head."""

    relu = "relu"
    tanh = "tanh"

    def function(self, x: Tensor) -> Tensor:
        """The function itself."""
        return torch.relu(x) if self is Activation.relu else torch.tanh(x)


def linear_parameters(layers: Iterable[nn.Module]) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of each linear layer: the parameters themselves, not copies.

    `to`, `deepcopy` and `load_state_dict` keep the list up to date. Replaced parameters are not found again:
    after `load_state_dict(assign=True)`, a replaced layer or a parametrisation the list holds the old ones.
    So change the values of the parameters, not the parameters.
    """
    return [(layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Linear)]


class MLP(nn.Module):
    """Linear layers with ReLU or tanh between them.

    With `last_gain` all layers start orthogonal, the last one scaled by it: a small one makes a first policy
    that hardly depends on the row. With `layer_norm` each hidden layer is normalised before its activation.
    While acting the MLP reads a dozen rows, for which calling one module per
    layer costs as much as the products: so the layers are applied here.
    """

    def __init__(
        self,
        in_dim: int,
        hidden: Sequence[int],
        out_dim: int,
        activation: Activation = Activation.relu,
        last_gain: float | None = None,
        *,
        bf16: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(inputs, outputs) for inputs, outputs in pairwise([in_dim, *hidden, out_dim])]
        )
        # (weight, bias) of each layer.
        self.applied = linear_parameters(self.layers)
        self.activation = activation
        self.bf16 = bf16
        self.norms = nn.ModuleList([nn.LayerNorm(width) for width in hidden if layer_norm])
        if last_gain is None:
            return
        # The gain sqrt(2) keeps the variance through a ReLU, which zeroes half of it (as in CleanRL's PPO).
        gains = [sqrt(2)] * len(hidden) + [last_gain]
        for (weight, bias), gain in zip(self.applied, gains, strict=True):
            nn.init.orthogonal_(weight, gain)
            nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_dim] -> [..., out_dim]."""
        *hidden, (last_weight, last_bias) = self.applied
        for number, (weight, bias) in enumerate(hidden):
            if self.norms:
                sums = dense(x, weight, bias, bf16=self.bf16).to(weight.dtype)
                x = self.activation.function(self.norms[number](sums))
            else:
                x = dense(x, weight, bias, self.activation.name, bf16=self.bf16)
        # The outputs are float32, always: values and log-probabilities need its digits.
        return dense(x, last_weight, last_bias)

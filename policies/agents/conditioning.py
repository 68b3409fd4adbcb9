"""Conditioning: how what is remembered enters a head's network: beside the current row, as changes of its
hidden layers, or as its weights.

`concatenate` is an MLP of (features, row). The others are an MLP of the row, y_l = W_l x + b_l, that the
features f change:

    film          x' = activation((1 + S_l f) * y_l + T_l f)          in the hidden layers (Perez et al. 2018, arXiv:1709.07871)
    hypernetwork  x' = activation((W_l + U_l(f)) x + b_l + V_l f)     in all layers (Ha et al. 2017, arXiv:1609.09106)

Scales, shifts, weights and biases are so linear functions of f, whose constants are 1, 0, W_l and b_l. S, T,
U and V begin as zeros and the constants as any network of this shape would: this is Bias-HyperInit (Beck et
al. 2022, arXiv:2210.11348), by which all tasks begin with one ordinary network, and without which
hypernetworks learn far worse. The memory gets its first gradient in the second update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

from policies.agents.base import Activation, Conditioning, Features
from policies.nn.dense import dense

ACTIVATIONS = {Activation.relu: torch.relu, Activation.tanh: torch.tanh}


@dataclass(frozen=True)
class HeadSizes:
    """What a head reads and gives."""

    features: int
    """0 beside a Markov branch."""
    obs: int
    action: int
    shortcut: int
    hidden: Sequence[int]
    activation: Activation = Activation.relu
    conditioning: Conditioning = Conditioning.concatenate
    """Where there are features."""
    hyper: int = 0
    """Numbers that a hypernetwork reduces the features to; 0: it takes them as they are."""
    bf16: bool = False
    """Hidden layers of an MLP compute many rows in bfloat16."""


class Join(nn.Module):
    """The features, and the current row past the memory: embedded beside a memory, raw beside a Markov
    branch.
    """

    def __init__(self, sizes: HeadSizes, *, with_action: bool) -> None:
        super().__init__()
        self.reads_obs = sizes.features == 0 or sizes.shortcut > 0
        current = sizes.obs * self.reads_obs + sizes.action * with_action
        embeds = sizes.features > 0 and sizes.shortcut > 0
        self.embed = nn.ModuleList([nn.Linear(current, sizes.shortcut)] if embeds else [])
        self._applied = linear_parameters(self.embed)
        self.apart = sizes.features > 0 and sizes.conditioning is not Conditioning.concatenate
        """Whether a network is to read them as two things."""
        self.out_dim = (sizes.shortcut if embeds else current) + (0 if self.apart else sizes.features)

    def forward(self, seen: Features, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """What a network of `net_of` is called with: both as one [..., out_dim]; or the row, [..., out_dim],
        and the features.
        """
        current = seen.obs if self.reads_obs else seen.obs[..., :0]
        if action is not None:
            current = torch.cat([current, action], -1)
        for weight, bias in self._applied:
            current = dense(current, weight, bias, "relu")
        return (current, seen.context) if self.apart else (torch.cat([seen.context, current], -1),)


def net_of(sizes: HeadSizes, join: Join, out_dim: int, last_gain: float | None = None) -> nn.Module:
    """A network of what `join` gives, [...] -> [..., out_dim]: called as net(*join(...))."""
    mlp = MLP(join.out_dim, sizes.hidden, out_dim, sizes.activation, last_gain, bf16=sizes.bf16)
    if not join.apart:
        return mlp
    return (
        FiLM(mlp, sizes.features)
        if sizes.conditioning is Conditioning.film
        else Hypernetwork(mlp, sizes.features, sizes.hyper)
    )


def linear_parameters(layers: Iterable[nn.Module]) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of each linear layer: the parameters themselves, which `to`, `deepcopy` and
    `load_state_dict` keep up to date.

    Nobody looks for them again: other parameters in their place (`load_state_dict(assign=True)`, a layer that
    is replaced, a parametrisation) would not be used. Change the values of those that there are.
    """
    return [(layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Linear)]


class MLP(nn.Module):
    """Linear layers with ReLU or tanh between them.

    `last_gain` starts them orthogonal, the last one scaled by it: the first policy then hardly depends on the
    row, if that is small. Acting calls it for a dozen rows, where the bookkeeping of nested module calls
    costs as much as the sums: so the layers are applied here.
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
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(inputs, outputs) for inputs, outputs in pairwise([in_dim, *hidden, out_dim])]
        )
        self.applied = linear_parameters(self.layers)
        self.activation = activation
        self.bf16 = bf16
        if last_gain is not None:
            for weight, bias in self.applied:
                nn.init.orthogonal_(weight, last_gain if weight is self.applied[-1][0] else sqrt(2))
                nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_dim] -> [..., out_dim]."""
        *hidden, (weight, bias) = self.applied
        for inner_weight, inner_bias in hidden:
            x = dense(x, inner_weight, inner_bias, self.activation.name, bf16=self.bf16)
        return dense(x, weight, bias)


class FiLM(nn.Module):
    """An MLP whose hidden layers the features scale and shift, before they activation."""

    def __init__(self, base: MLP, features: int) -> None:
        super().__init__()
        self.base = base
        self._widths = [width for weight, _ in base.applied[:-1] for width in (len(weight), len(weight))]
        self.weight = nn.Parameter(torch.zeros(sum(self._widths), features))
        self._bend = ACTIVATIONS[base.activation]

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        """[..., in_dim], [..., F] -> [..., out_dim]."""
        *hidden, (weight, bias) = self.base.applied
        changes = iter(dense(features, self.weight).split(self._widths, -1))
        for (inner_weight, inner_bias), scale, shift in zip(hidden, changes, changes, strict=True):
            y = dense(x, inner_weight, inner_bias)
            x = self._bend(torch.addcmul(y + shift, y, scale))
        return dense(x, weight, bias)


class Hypernetwork(nn.Module):
    """An MLP whose weights and biases are, at every row, a linear function of the features.

    A layer of I inputs and O outputs costs as much as F + 1 of an MLP, however its sums are ordered: with F =
    128 numbers of a GRU that is a hundred times a plain head (measured: 4.0 s against 35 ms, for 6,432 rows
    of an actor and a critic). So the features are reduced to `size` numbers first, which keeps the function
    linear, of that rank: 0.37 s with 16, 0.18 s with 8.
    """

    def __init__(self, base: MLP, features: int, size: int) -> None:
        super().__init__()
        self.base = base
        reduces = 0 < size < features
        self.reduce = nn.ModuleList([nn.Linear(features, size, bias=False)] if reduces else [])
        self.changes = nn.ModuleList(
            [Generated(size if reduces else features, *weight.t().shape) for weight, _ in base.applied]
        )
        self._bend = ACTIVATIONS[base.activation]

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        """[..., in_dim], [..., F] -> [..., out_dim]."""
        for layer in self.reduce:
            features = layer(features)
        for index, ((weight, bias), change) in enumerate(zip(self.base.applied, self.changes, strict=True)):
            if index:
                x = self._bend(x)
            x = dense(x, weight, bias) + change(x, features)
        return x


class Generated(nn.Module):
    """U(f) x + V f for each row, with U [O, I] and V f [O] linear in f [F], and zero at first.

    The weights of a row are never made: they would be F I O products and I O numbers for each row, to be used
    once. The same products give the result either by U (f x'), F I numbers for each row, or by f (U x), F O
    numbers for each row: the smaller of the two is taken. Measured for 6,432 rows, F = 16, forward and
    backward on one core that others used too: 32 to 128 takes 22 ms by the first, 53 by the second, and 193
    by way of weights; 128 to 128 takes 154, 116 and 957; 128 to 16 takes 96, 20 and 67. Those numbers are
    kept for the gradient: 53 MB of the 128 to 128, where weights would be 421.
    """

    def __init__(self, features: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self._outer_first = in_dim < out_dim
        self._shape = (features, out_dim)
        self.weight = nn.Parameter(
            torch.zeros((out_dim, features * in_dim) if self._outer_first else (features * out_dim, in_dim))
        )
        self.bias = nn.Parameter(
            torch.zeros((out_dim, features) if self._outer_first else features * out_dim)
        )

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        """[..., I], [..., F] -> [..., O]."""
        if self._outer_first:
            products = (features[..., :, None] * x[..., None, :]).flatten(-2)
            return dense(products, self.weight) + dense(features, self.bias)
        each = dense(x, self.weight, self.bias).unflatten(-1, self._shape)
        return torch.matmul(features[..., None, :], each).squeeze(-2)

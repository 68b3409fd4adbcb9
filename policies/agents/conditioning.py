"""Conditioning: how the context, which is what a trial has shown so far, changes a head's network.

With `concatenate` a head is an MLP of (context, row). With the others it is an MLP of the current row,
y_l = W_l x + b_l, that the context f changes:

    film          x' = activation((1 + S_l f) * y_l + T_l f)
                  in the hidden layers (Perez et al. 2018, arXiv:1709.07871)
    hypernetwork  x' = activation((W_l + U_l(f)) x + b_l + V_l f)
                  in all layers (Ha et al. 2017, arXiv:1609.09106)

So scales, shifts, weights and biases are affine in f; their constant parts are 1, 0, W_l and b_l. S, T, U and
V start as zeros, and W_l and b_l as in any network of this shape. This is Bias-HyperInit (Beck et al. 2022,
arXiv:2210.11348): all tasks start with one ordinary network. Hypernetworks learn far worse without it. The
memory gets its first gradient in the second update.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.nn.dense import dense
from policies.nn.mlp import MLP, Activation

_ACTIVATIONS = {Activation.relu: torch.relu, Activation.tanh: torch.tanh}


class FiLM(nn.Module):
    """An MLP whose hidden layers the context scales and shifts before their activation."""

    def __init__(self, base: MLP, context: int) -> None:
        super().__init__()
        self.base = base
        # For each hidden layer as many scales as units, and as many shifts.
        self._widths: list[int] = []
        for weight, _ in base.applied[:-1]:
            self._widths += [len(weight), len(weight)]
        # S and T of all hidden layers, one below the other.
        self.weight = nn.Parameter(torch.zeros(sum(self._widths), context))
        self._activate = _ACTIVATIONS[base.activation]

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """[..., in_dim], [..., F] -> [..., out_dim]."""
        # One product gives the scales and shifts of all layers, in the order of `_widths`.
        scales_and_shifts = dense(context, self.weight).split(self._widths, -1)
        *hidden, (last_weight, last_bias) = self.base.applied
        for (weight, bias), scale, shift in zip(
            hidden, scales_and_shifts[::2], scales_and_shifts[1::2], strict=True
        ):
            y = dense(x, weight, bias)
            x = self._activate(torch.addcmul(y + shift, y, scale))  # (1 + S f) y + T f
        return dense(x, last_weight, last_bias)


class Hypernetwork(nn.Module):
    """An MLP whose weights and biases are, at every row, an affine function of the context.

    A layer of I inputs and O outputs costs as much as F + 1 of an MLP, however its sums are ordered. With the
    F = 128 numbers of a GRU that is a hundred times a plain head (measured: 4.0 s against 35 ms, for 6,432
    rows of an actor and a critic). So the context is reduced to `size` numbers first. The function remains
    affine, of that rank: 0.37 s with 16 numbers, 0.18 s with 8.
    """

    def __init__(self, base: MLP, context: int, size: int) -> None:
        super().__init__()
        self.base = base
        # A size of 0, or one that is no reduction, takes the context as it is.
        self.reduce = nn.ModuleList()
        if 0 < size < context:
            self.reduce.append(nn.Linear(context, size, bias=False))
            context = size
        self.changes = nn.ModuleList(
            [GeneratedLayer(context, *weight.t().shape) for weight, _ in base.applied]
        )
        self._activate = _ACTIVATIONS[base.activation]

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """[..., in_dim], [..., F] -> [..., out_dim]."""
        for layer in self.reduce:
            context = layer(context)
        for index, ((weight, bias), change) in enumerate(zip(self.base.applied, self.changes, strict=True)):
            if index:  # the activation stands between layers
                x = self._activate(x)
            # (W + U(f)) x + b + V f, with the constant part and the generated part apart
            x = dense(x, weight, bias) + change(x, context)
        return x


class GeneratedLayer(nn.Module):
    """U(f) x + V f for each row, with U [O, I] and V f [O] linear in f [F], and zero at first.

    The weights of a row are never made: they would be F I O products and I O numbers for each row, to be used
    once. The same products give the result either by U (f x'), F I numbers for each row, or by f (U x), F O
    numbers for each row: the smaller of the two is taken. Measured for 6,432 rows, F = 16, forward and
    backward on one core that others used too: 32 to 128 takes 22 ms by the first, 53 by the second, and 193
    by way of weights; 128 to 128 takes 154, 116 and 957; 128 to 16 takes 96, 20 and 67. Those numbers are
    stored for the gradient: 53 MB of the 128 to 128, where weights would be 421.
    """

    def __init__(self, context: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self._outer_first = in_dim < out_dim
        self._shape = (context, out_dim)
        # U is stored as the one matrix that the chosen order of products needs, and V beside it.
        if self._outer_first:
            weight, bias = torch.zeros(out_dim, context * in_dim), torch.zeros(out_dim, context)
        else:
            weight, bias = torch.zeros(context * out_dim, in_dim), torch.zeros(context * out_dim)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """[..., I], [..., F] -> [..., O]."""
        if self._outer_first:
            # U (f x'): the outer product of context and inputs, [F I], and then one product
            products = (context[..., :, None] * x[..., None, :]).flatten(-2)
            return dense(products, self.weight) + dense(context, self.bias)
        # f (U x): what each number of the context would give alone, [F, O], weighed by the context
        each = dense(x, self.weight, self.bias).unflatten(-1, self._shape)
        return torch.matmul(context[..., None, :], each).squeeze(-2)

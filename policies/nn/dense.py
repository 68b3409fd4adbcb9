"""Dense layers and their gradients, in float32 by whichever of torch's two libraries for the CPU is faster
for the shape at hand, or in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

_FEWEST_ROWS = 32
"""Below, a call of oneDNN costs more to prepare than it saves; for the smallest layers, below eight times as
many.
"""
_SMALL = 4096
"""Weights of such a layer."""


_FEWEST_BF16 = 256
"""Rows below which bfloat16 would not pay."""


def dense(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none", *, bf16: bool = False
) -> Tensor:
    """x [..., I] weight [O, I] -> [..., O], as `torch.nn.functional.linear`, with gradients; then `relu`,
    `tanh` or `none`.

    `bf16`: in bfloat16, if there are many rows, and not in inference mode, in which agents act; what comes
    out stays so for the next layer, which may be in float32 again. Sums are always in float32, as parameters
    are; a gradient is rounded to bfloat16 once it is summed.
    """
    if bf16 and not torch.is_inference_mode_enabled() and x.numel() >= _FEWEST_BF16 * x.shape[-1]:
        return _Bf16Product.apply(x, weight, bias, activation)
    if x.dtype is torch.bfloat16:
        x = x.to(weight.dtype)
    if _pays(x, weight):
        return _Dense.apply(x, weight, bias, activation)
    return _ACTIVATIONS[activation](linear(x, weight, bias))


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., I] weight [O, I] -> [..., O], where no gradient is kept."""
    return _product(x, weight, bias, "none") if _pays(x, weight) else linear(x, weight, bias)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu_,
    "tanh": torch.tanh_,
}


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    # MKL, behind `linear`, has no AVX-512 for AMD: 119 GFLOP/s on a Zen 5 core, and oneDNN 267. On Intel they
    # are about equal. Its tanh, done while the sums are at hand, takes a tenth of the time of torch's.
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")


def outer(gradient: Tensor, x: Tensor) -> Tensor:
    """gradient [..., O] x [..., I] -> [O, I], summed over rows: the gradient of a weight."""
    left, right = gradient.flatten(0, -2).t(), x.flatten(0, -2).t()
    # The left one is copied into rows of its own, so the narrower one goes there.
    return product(left, right) if len(left) <= len(right) else product(right, left).t()


def _pays(x: Tensor, weight: Tensor) -> bool:
    # The operator is the one that torch.compile emits, so it comes and goes with oneDNN.
    fewest = (_FEWEST_ROWS if weight.numel() >= _SMALL else 8 * _FEWEST_ROWS) * x.shape[-1]
    return (
        x.is_cpu
        and x.dtype is torch.float32
        and x.numel() >= fewest
        and _onednn()
        and not torch.is_autocast_enabled("cpu")
    )


def _onednn() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out = _product(x, weight, bias, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, weight, None if activation == "none" else out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, out = ctx.saved_tensors
        gradient = _before_activation(gradient, out, ctx.activation)
        wanted = ctx.needs_input_grad
        return (
            product(gradient, weight.t()) if wanted[0] else None,
            outer(gradient, x) if wanted[1] else None,
            gradient.flatten(0, -2).sum(0) if wanted[2] else None,
            None,
        )


class _Bf16Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        kind = x.dtype
        x, bf16 = x.bfloat16(), weight.bfloat16()
        out = _bf16_product(x, bf16, None if bias is None else bias.bfloat16(), activation)
        ctx.activation, ctx.kind = activation, kind
        ctx.save_for_backward(x, bf16, None if activation == "none" else out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, out = ctx.saved_tensors
        gradient = _before_activation(gradient, out, ctx.activation)
        rows, wanted = gradient.flatten(0, -2), ctx.needs_input_grad
        return (
            _bf16_product(gradient, weight.t()).to(ctx.kind) if wanted[0] else None,
            (rows.t() @ x.flatten(0, -2)).float() if wanted[1] else None,
            rows.sum(0, dtype=torch.float32) if wanted[2] else None,
            None,
        )


def _bf16_product(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    return (
        _product(x, weight, bias, activation)
        if x.is_cpu and _onednn()
        else _ACTIVATIONS[activation](linear(x, weight, bias))
    )


def _before_activation(gradient: Tensor, out: Tensor, activation: str) -> Tensor:
    """The gradient before the layer was bent."""
    if activation == "relu":
        return torch.ops.aten.threshold_backward(gradient, out, 0)
    return torch.ops.aten.tanh_backward(gradient, out) if activation == "tanh" else gradient

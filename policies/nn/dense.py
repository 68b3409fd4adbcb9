"""Dense layers and their gradients, in float32 or bfloat16, by the faster of torch's two CPU libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from utils.machine import is_amd

# For fewer rows a call of oneDNN costs more than it saves; small layers need eight times as many.
_FEWEST_ROWS = 32
# A layer of fewer weights is small.
_SMALL = 4096
# For fewer rows bfloat16 does not pay.
_FEWEST_BF16 = 256


def dense(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none", *, bf16: bool = False
) -> Tensor:
    """x [..., I] weight [O, I] -> [..., O], as `torch.nn.functional.linear`, then `relu`, `tanh` or `none`.

    `bf16` computes in bfloat16 if there are many rows, but not in inference mode, in which agents act. The
    result stays in bfloat16 for the next layer, which may be in float32 again. Sums are always in float32, as
    parameters are; a gradient is rounded to bfloat16 once it is summed.
    """
    if bf16 and not torch.is_inference_mode_enabled() and x.numel() >= _FEWEST_BF16 * x.shape[-1]:
        return _Bf16Product.apply(x, weight, bias, activation)
    if x.dtype is torch.bfloat16:
        x = x.to(weight.dtype)
    if _pays(x, weight):
        return _Dense.apply(x, weight, bias, activation)
    return _ACTIVATIONS[activation](linear(x, weight, bias))


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., I] weight [O, I] -> [..., O], where no gradient is needed."""
    if _pays(x, weight):
        return _product(x, weight, bias, "none")
    return linear(x, weight, bias)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu_,
    "tanh": torch.tanh_,
}


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    # MKL, behind `linear`, has no AVX-512 for AMD: 119 GFLOP/s on a Zen 5 core, and oneDNN 267. Its tanh,
    # done while the sums are at hand, takes a tenth of the time of torch's.
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")


def outer(gradient: Tensor, x: Tensor) -> Tensor:
    """gradient [..., O] x [..., I] -> [O, I], summed over rows: the gradient of a weight."""
    left, right = gradient.flatten(0, -2).t(), x.flatten(0, -2).t()
    # The product copies its left factor into contiguous rows, so the narrower one goes there.
    if len(left) <= len(right):
        return product(left, right)
    return product(right, left).t()


def _pays(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes this product, and faster than MKL."""
    fewest = _FEWEST_ROWS if weight.numel() >= _SMALL else 8 * _FEWEST_ROWS
    return (
        x.is_cpu
        and x.dtype is torch.float32
        and x.numel() >= fewest * x.shape[-1]
        and _onednn()
        and not torch.is_autocast_enabled("cpu")
    )


def _onednn() -> bool:
    # On Intel's processors MKL is as fast or faster, and an update of SAC takes three quarters of the time:
    # oneDNN first reorders the weights in every call.
    #
    # The operator is the one that torch.compile emits, so a build of torch has it if it has oneDNN.
    return (
        is_amd()
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class _Dense(torch.autograd.Function):
    """A layer in float32 by oneDNN: y = a(W x + b)."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
    ) -> Tensor:
        out = _product(x, weight, bias, activation)
        ctx.activation = activation
        # The derivative of an activation follows from its output, so W x + b need not be stored.
        ctx.save_for_backward(x, weight, None if activation == "none" else out)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        gradient = _before_activation(gradient, out, ctx.activation)
        to_x = to_weight = to_bias = None
        # dL/dx = W' g, dL/dW = sum over rows of g x', dL/db = sum over rows of g
        if ctx.needs_input_grad[0]:
            to_x = product(gradient, weight.t())
        if ctx.needs_input_grad[1]:
            to_weight = outer(gradient, x)
        if ctx.needs_input_grad[2]:
            to_bias = gradient.flatten(0, -2).sum(0)
        return to_x, to_weight, to_bias, None


class _Bf16Product(torch.autograd.Function):
    """A layer in bfloat16: inputs and parameters are rounded, and sums are taken in float32."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
    ) -> Tensor:
        # The gradient goes back in the type in which the input came: float32, or bfloat16 of a layer before.
        ctx.activation, ctx.input_dtype = activation, x.dtype
        x, weight = x.bfloat16(), weight.bfloat16()
        out = _bf16_product(x, weight, None if bias is None else bias.bfloat16(), activation)
        ctx.save_for_backward(x, weight, None if activation == "none" else out)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        gradient = _before_activation(gradient, out, ctx.activation)
        rows = gradient.flatten(0, -2)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_x = _bf16_product(gradient, weight.t()).to(ctx.input_dtype)
        if ctx.needs_input_grad[1]:
            to_weight = (rows.t() @ x.flatten(0, -2)).float()
        if ctx.needs_input_grad[2]:
            to_bias = rows.sum(0, dtype=torch.float32)
        return to_x, to_weight, to_bias, None


def _bf16_product(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    if x.is_cpu and _onednn():
        return _product(x, weight, bias, activation)
    return _ACTIVATIONS[activation](linear(x, weight, bias))


def _before_activation(gradient: Tensor, out: Tensor, activation: str) -> Tensor:
    """The gradient at W x + b, from the one at the layer's output."""
    if activation == "relu":
        return torch.ops.aten.threshold_backward(gradient, out, 0)
    if activation == "tanh":
        return torch.ops.aten.tanh_backward(gradient, out)
    return gradient

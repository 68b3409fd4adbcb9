"""Dense layers give what torch's linear gives, value and gradients, for as many rows as there may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from policies.nn import dense as module
from policies.nn.dense import dense, outer, product

# Of sums over 300 rows in another order.
TOLERANCE = 1e-4


def layer(shape: tuple[int, ...], width: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((*shape, 7), (width, 7), (width,))
    x, weight, bias = (torch.randn(size, generator=generator).requires_grad_() for size in sizes)
    return x, weight, bias


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


@pytest.fixture(params=[True, False], ids=["AMD", "Intel"])
def amd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(module, "is_amd", lambda: request.param)
    return request.param


def test_onednn_serves_the_processors_that_it_is_faster_on(amd: bool) -> None:
    x, weight, _ = layer((300,), 700)
    assert module._pays(x, weight) == amd


@pytest.mark.usefixtures("amd")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [3, 20, 700])
@pytest.mark.parametrize("shape", [(2,), (5, 60), (300,)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_those_of_linear(
    shape: tuple[int, ...], width: int, with_bias: bool, activation: str
) -> None:
    x, weight, bias = layer(shape, width)
    inputs = (x, weight, bias) if with_bias else (x, weight)
    ours, plain = dense(x, weight, bias if with_bias else None, activation), linear(*inputs)
    theirs = ACTIVATIONS[activation](plain)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)
    given = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1))
    for one, other in zip(
        torch.autograd.grad(ours, inputs, given), torch.autograd.grad(theirs, inputs, given), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)
    with torch.inference_mode():
        torch.testing.assert_close(product(*inputs), plain, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(
        outer(given, x), given.flatten(0, -2).t() @ x.flatten(0, -2), rtol=0, atol=TOLERANCE
    )


@pytest.mark.usefixtures("amd")
def test_only_what_somebody_wants_is_differentiated() -> None:
    x, weight, bias = layer((300,), 4)
    (gradient,) = torch.autograd.grad(dense(x.detach(), weight, bias.detach()).sum(), weight)
    torch.testing.assert_close(gradient, x.sum(0).expand(4, 7), rtol=0, atol=TOLERANCE)


def test_other_types_and_a_torch_without_onednn_are_served_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = layer((300,), 4)
    assert dense(x.double(), weight.double()).dtype is torch.float64
    monkeypatch.setattr(module, "_onednn", lambda: False)
    assert torch.equal(dense(x, weight, bias), linear(x, weight, bias))
    with torch.autocast("cpu", torch.bfloat16):
        assert dense(x, weight, bias).dtype is torch.bfloat16


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_in_brief_the_sums_are_nearly_the_same_and_gradients_stay_in_full(activation: str) -> None:
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape).mul(0.3).requires_grad_() for shape in ((4, 80, 24), (16, 24), (16,))
    )
    through = torch.randn(4, 80, 16)
    full, bf16 = (dense(x, weight, bias, activation, bf16=bf16) for bf16 in (False, True))
    assert bf16.dtype is torch.bfloat16 and full.dtype is torch.float32
    for one, other in zip(
        *(torch.autograd.grad((out.float() * through).sum(), (x, weight, bias)) for out in (full, bf16)),
        strict=True,
    ):
        assert other.dtype is torch.float32
        assert (one - other).norm() < 0.06 * one.norm(), "a sum near 0 may be bent the other way"
    assert (full - bf16).norm() < 0.01 * full.norm()
    after = dense(bf16, torch.eye(16))
    assert after.dtype is torch.float32 and torch.equal(after, bf16.float())


def test_few_rows_are_never_computed_in_brief() -> None:
    x, weight = torch.randn(255, 24), torch.randn(16, 24)
    assert torch.equal(dense(x, weight, None, "relu", bf16=True), dense(x, weight, None, "relu"))


def test_what_acts_is_never_computed_in_brief() -> None:
    x, weight = torch.randn(512, 24), torch.randn(16, 24)
    with torch.inference_mode():
        assert torch.equal(dense(x, weight, None, "relu", bf16=True), dense(x, weight, None, "relu"))
    assert dense(x, weight, None, "relu", bf16=True).dtype is torch.bfloat16

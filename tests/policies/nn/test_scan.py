"""Scans equal the loops they stand for, whatever the length of their stretches, and so do their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from policies.nn.scan import blend, running_max

ROWS, COLUMNS, WIDTH = 13, 5, 3

chunks = pytest.mark.parametrize("chunk", [1, 2, 4, 7, 13, 99, None])


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(
        shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


def resets(share: float) -> Tensor:
    return torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(9)) < share


def blended_by_hand(candidate: Tensor, logit: Tensor, start: Tensor, reset: Tensor) -> Tensor:
    hidden, out = start, []
    for t in range(ROWS):
        hidden = torch.where(reset[t, :, None], 0.0, hidden)
        hidden = hidden + logit[t].sigmoid() * (candidate[t] - hidden)
        out.append(hidden)
    return torch.stack(out)


def largest_by_hand(values: Tensor, start: Tensor, reset: Tensor) -> Tensor:
    hidden, out = start, []
    for t in range(ROWS):
        hidden = torch.where(reset[t, :, None], 0.0, hidden)
        hidden = torch.where(values[t] >= hidden, values[t], hidden)
        out.append(hidden)
    return torch.stack(out)


def assert_same(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs)
    given = numbers(8, *theirs.shape).detach()
    for one, other in zip(
        torch.autograd.grad(ours, inputs, given), torch.autograd.grad(theirs, inputs, given), strict=True
    ):
        torch.testing.assert_close(one, other)


@chunks
@pytest.mark.parametrize("share", [0.0, 0.15, 0.6])
@pytest.mark.parametrize("gates", [WIDTH, 1])
def test_blending_equals_the_loop(chunk: int | None, share: float, gates: int) -> None:
    candidate, logit, start = (
        numbers(1, ROWS, COLUMNS, WIDTH),
        numbers(2, ROWS, COLUMNS, gates),
        numbers(3, COLUMNS, WIDTH),
    )
    reset = resets(share)
    ours, theirs = (
        blend(candidate, logit, start, reset, chunk),
        blended_by_hand(candidate, logit, start, reset),
    )
    assert_same(ours, theirs, [candidate, logit, start])


@chunks
@pytest.mark.parametrize("share", [0.0, 0.15, 0.6])
def test_the_running_maximum_equals_the_loop(chunk: int | None, share: float) -> None:
    values, start = (numbers(1, ROWS, COLUMNS, WIDTH) * 3).abs().floor(), numbers(2, COLUMNS, WIDTH).abs()
    values = values.detach().requires_grad_()  # whole numbers, so that some are equal
    assert_same(
        running_max(values, start, resets(share), chunk),
        largest_by_hand(values, start, resets(share)),
        [values, start],
    )


@chunks
def test_not_even_a_nan_crosses_a_reset(chunk: int | None) -> None:
    reset = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    reset[6, 1] = True
    candidate, logit, start = (numbers(seed, ROWS, COLUMNS, WIDTH).detach() for seed in (1, 2, 3))
    candidate[:6, 1] = torch.nan
    for out in (
        blend(candidate, logit, start[0], reset, chunk),
        running_max(candidate.abs(), start[0].abs(), reset, chunk),
    ):
        assert out[6:].isfinite().all()
        assert out[:, [0, 2, 3, 4]].isfinite().all()
        assert out[5, 1].isnan().all()


@pytest.mark.parametrize("chunk", [31, None])
def test_a_thousand_rows_stay_within_their_range(chunk: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    candidate = torch.rand(1000, 2, 4, generator=generator)
    logit = 20 * torch.randn(1000, 2, 4, generator=generator)
    out = blend(candidate, logit, torch.zeros(2, 4), torch.zeros(1000, 2, dtype=torch.bool), chunk)
    assert out.isfinite().all()
    assert 0 <= out.min() <= out.max() <= 1

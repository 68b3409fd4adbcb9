"""Scans over time with resets and their own gradients: blend, h' = h + z (c - h), and the running maximum.

h' is linear in h, so a stretch of rows can start from zero and receive what came before it later, times the
product of its 1 - z. With `chunk` rows to a stretch all stretches run at the same time, in `chunk` + T /
`chunk` operations instead of T. On a CPU a row's blend takes two microseconds and wider ones no less for each
row, so there the whole pass is one stretch. Each h' lies between h and c, so nothing can grow, however many
rows there are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


def blend(candidate: Tensor, logit: Tensor, start: Tensor, reset: Tensor, chunk: int | None = None) -> Tensor:
    """The h' of every row, [T, B, H], with z = sigmoid(logit).

    candidate [T, B, H], logit [T, B, H or 1], start [B, H], reset [T, B].
    """
    return _Blend.apply(candidate, logit, start, reset, _chunk(candidate, chunk))


def running_max(values: Tensor, start: Tensor, reset: Tensor, chunk: int | None = None) -> Tensor:
    """The largest value since the reset at every row, [T, B, H]; of equals, the last has the gradient.

    values [T, B, H] >= 0, start [B, H], reset [T, B].
    """
    return _RunningMax.apply(values, start, reset, _chunk(values, chunk))


def forgetting_columns(reset: Tensor) -> list[Tensor | None]:
    """For each row of reset [..., T, B] the columns that forget, [..., B, 1], or None where none does."""
    # Asked for all rows at once: on a GPU each question would wait for the device.
    any_forgets = reset.movedim(-2, 0).flatten(1).any(1).tolist()
    rows = zip(reset[..., None].unbind(-3), any_forgets, strict=True)
    return [columns if forgets else None for columns, forgets in rows]


def _chunk(values: Tensor, chunk: int | None) -> int:
    """Rows to a stretch: all of them on a CPU, else the root, for which chunk + T / chunk is smallest."""
    rows = len(values)
    if chunk is not None:
        return min(rows, chunk)
    if values.is_cpu:
        return rows
    return math.isqrt(rows)


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, candidate: Tensor, logit: Tensor, start: Tensor, reset: Tensor, chunk: int
    ) -> Tensor:
        z = logit.sigmoid()
        out = _stretches(candidate, z, start, reset, chunk)
        ctx.chunk = chunk
        ctx.save_for_backward(candidate, z, reset, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        candidate, z, reset, out = ctx.saved_tensors
        # `through` is dL/dh' with all that later rows contribute, and dh'/dc = z.
        through, to_start = _stretches_back(gradient, z, reset, ctx.chunk)
        to_candidate = through.mul_(z)
        # dL/dz = through (c - h) = through (c - h') / (1 - z), and behind the sigmoid z (1 - z) times that
        to_logit: Tensor | None = None
        if ctx.needs_input_grad[1]:
            to_logit = (candidate - out).mul_(to_candidate).sum_to_size(z.shape)
        return to_candidate, to_logit, to_start, None, None


class _RunningMax(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, values: Tensor, start: Tensor, reset: Tensor, chunk: int
    ) -> Tensor:
        out = _stretches_max(values, start, reset, chunk)
        ctx.chunk = chunk
        ctx.save_for_backward(values, reset, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        values, reset, out = ctx.saved_tensors
        # A maximum is a blend with z in {0, 1}: 1 where the row has the largest value.
        largest = (values == out).to(values.dtype)
        through, to_start = _stretches_back(gradient, largest, reset, ctx.chunk)
        return through.mul_(largest), to_start, None, None


def _stretches(candidate: Tensor, z: Tensor, start: Tensor, reset: Tensor, chunk: int) -> Tensor:
    """The h' of every row of a blend."""
    rows = len(z)
    candidate, z, reset = (_cut(values, chunk) for values in (candidate, z, reset))
    out = torch.empty_like(candidate)
    # 1. Row by row, all stretches at the same time; only the first one knows what came before it.
    old = _first(candidate, start)
    c_rows, z_rows, out_rows = candidate.unbind(1), z.unbind(1), out.unbind(1)
    for t, forget in enumerate(forgetting_columns(reset)):
        if forget is not None:
            old = old.masked_fill(forget, 0.0)
        old = torch.lerp(old, c_rows[t], z_rows[t], out=out_rows[t])
    # 2. Stretch by stretch, each row receives what the stretch before it ended with, times the product of its
    # 1 - z so far; nothing where a reset stands between.
    if len(out) > 1:
        remaining, crossed = (1 - z).cumprod(1), _crossed(reset)
        for i in range(1, len(out)):
            out[i].add_((remaining[i] * out[i - 1, -1]).masked_fill_(crossed[i], 0.0))
    return out.flatten(0, 1)[:rows]


def _stretches_max(values: Tensor, start: Tensor, reset: Tensor, chunk: int) -> Tensor:
    """The running maximum at every row, in the same two passes."""
    rows = len(values)
    values, reset = _cut(values, chunk), _cut(reset, chunk)
    out = torch.empty_like(values)
    old = _first(values, start)
    value_rows, out_rows = values.unbind(1), out.unbind(1)
    for t, forget in enumerate(forgetting_columns(reset)):
        if forget is not None:
            old = old.masked_fill(forget, 0.0)
        old = torch.maximum(old, value_rows[t], out=out_rows[t])
    crossed = _crossed(reset)
    for i in range(1, len(out)):
        before = out[i - 1, -1].expand_as(out[i]).masked_fill(crossed[i], 0.0)
        torch.maximum(out[i], before, out=out[i])
    return out.flatten(0, 1)[:rows]


def _stretches_back(gradient: Tensor, z: Tensor, reset: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """The gradient that arrives at every h' from all rows after it, and the one that arrives at the start."""
    rows = len(z)
    gradient, z, reset = (_cut(values, chunk) for values in (gradient, z, reset))
    through = torch.empty_like(gradient)
    # 1. Row by row from the last, all stretches at the same time: dL/dh = (1 - z) dL/dh', 0 across a reset.
    given_rows, z_rows, through_rows = gradient.unbind(1), z.unbind(1), through.unbind(1)
    forgets = forgetting_columns(reset)
    later = torch.zeros_like(gradient[:, 0])
    for t in reversed(range(len(forgets))):
        arrived = torch.add(given_rows[t], later, out=through_rows[t])
        later = torch.addcmul(arrived, arrived, z_rows[t], value=-1)
        forget = forgets[t]
        if forget is not None:
            later.masked_fill_(forget, 0.0)
    # 2. Stretch by stretch from the last: row t receives what the next stretch sends back, times the 1 - z of
    # the rows t + 1, t + 2, ... of its own stretch, if none of them forgets.
    if len(through) > 1:
        remaining = _shifted(1 - z, 1.0).flip(1).cumprod(1).flip(1)
        crossed = _crossed(_shifted(reset, False).flip(1)).flip(1)
        for i in reversed(range(len(through) - 1)):
            received = (remaining[i] * later[i + 1]).masked_fill_(crossed[i], 0.0)
            through[i].add_(received)
            later[i].add_((received[0] * (1 - z[i, 0])).masked_fill_(reset[i, 0, :, None], 0.0))
    return through.flatten(0, 1)[:rows], later[0]


def _first(values: Tensor, start: Tensor) -> Tensor:
    """[stretches, B, H] what each stretch starts from: the first from `start`, the others from zero."""
    return torch.cat([start[None], torch.zeros_like(values[1:, 0])])


def _crossed(reset: Tensor) -> Tensor:
    """[stretches, chunk, B, 1] where a row has a reset between it and the beginning of its stretch."""
    return reset.cumsum(1).bool()[..., None]


def _cut(values: Tensor, chunk: int) -> Tensor:
    """[T, ...] -> [stretches, chunk, ...], with zeros below the last row."""
    missing = -len(values) % chunk
    if missing:
        values = pad(values, [0, 0] * (values.dim() - 1) + [0, missing])
    return values.unflatten(0, (-1, chunk))


def _shifted(values: Tensor, last: float) -> Tensor:
    """Each row's values become those of the row after it; the last row's become `last`."""
    return torch.cat([values[:, 1:], torch.full_like(values[:, :1], last)], 1)

"""Recurrences whose rows need not wait for one another: blend, h' = h + z (c - h), and the running maximum,
with resets and their own gradients.

h' is linear in h, so a stretch of rows can start from zero and receive what came before it later, times the
product of its 1 - z. With `chunk` rows to a stretch all stretches run side by side, in `chunk` + T / `chunk`
operations instead of T. On a CPU a row's blend takes two microseconds and wider ones no less for each row, so
there the whole pass is one stretch. Each h' lies between h and c, so nothing can grow, however many rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


def blend(candidate: Tensor, logit: Tensor, start: Tensor, reset: Tensor, chunk: int | None = None) -> Tensor:
    """candidate [T, B, H], logit [T, B, H or 1], start [B, H], reset [T, B] -> h' of every row, z =
    sigmoid(logit).
    """
    return _Blend.apply(candidate, logit, start, reset, _chunk(candidate, chunk))


def running_max(values: Tensor, start: Tensor, reset: Tensor, chunk: int | None = None) -> Tensor:
    """values [T, B, H] >= 0, start [B, H], reset [T, B] -> the largest since the reset; of equals, the last
    has the gradient.
    """
    return _RunningMax.apply(values, start, reset, _chunk(values, chunk))


def _chunk(values: Tensor, chunk: int | None) -> int:
    rows = len(values)
    return min(rows, chunk or (rows if values.is_cpu else math.isqrt(rows)))


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, candidate: Tensor, logit: Tensor, start: Tensor, reset: Tensor, chunk: int
    ) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        z = logit.sigmoid()
        out = _stretches(candidate, z, start, reset, chunk)
        ctx.chunk = chunk
        ctx.save_for_backward(candidate, z, reset, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        candidate, z, reset, out = ctx.saved_tensors
        through, to_start = _stretches_back(gradient, z, reset, ctx.chunk)
        to_candidate = through.mul_(z)
        # dL/dz = through (c - h) = through (c - h') / (1 - z), and behind the sigmoid z (1 - z) times that
        to_logit = (
            (candidate - out).mul_(to_candidate).sum_to_size(z.shape) if ctx.needs_input_grad[1] else None
        )
        return to_candidate, to_logit, to_start, None, None


class _RunningMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, start: Tensor, reset: Tensor, chunk: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        out = _stretches_max(values, start, reset, chunk)
        ctx.chunk = chunk
        ctx.save_for_backward(values, reset, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, reset, out = ctx.saved_tensors
        largest = (values == out).to(values.dtype)  # a blend with z in {0, 1}
        through, to_start = _stretches_back(gradient, largest, reset, ctx.chunk)
        return through.mul_(largest), to_start, None, None


def _stretches(candidate: Tensor, z: Tensor, start: Tensor, reset: Tensor, chunk: int) -> Tensor:
    rows = len(z)
    candidate, z, reset = (_cut(values, chunk) for values in (candidate, z, reset))
    out = torch.empty_like(candidate)
    old = _first(candidate, start)
    for new, share, forget, after in zip(
        candidate.unbind(1), z.unbind(1), _columns(reset), out.unbind(1), strict=True
    ):
        old = torch.lerp(old if forget is None else old.masked_fill(forget, 0.0), new, share, out=after)
    if len(out) > 1:
        kept = (1 - z).cumprod(1)
        for earlier, after, share, gone in zip(out[:-1], out[1:], kept[1:], _crossed(reset)[1:], strict=True):
            after += (share * earlier[-1]).masked_fill_(gone, 0.0)
    return out.flatten(0, 1)[:rows]


def _stretches_max(values: Tensor, start: Tensor, reset: Tensor, chunk: int) -> Tensor:
    rows = len(values)
    values, reset = (_cut(one, chunk) for one in (values, reset))
    out = torch.empty_like(values)
    old = _first(values, start)
    for new, forget, after in zip(values.unbind(1), _columns(reset), out.unbind(1), strict=True):
        old = torch.maximum(old if forget is None else old.masked_fill(forget, 0.0), new, out=after)
    for earlier, after, gone in zip(out[:-1], out[1:], _crossed(reset)[1:], strict=True):
        torch.maximum(after, earlier[-1].expand_as(after).masked_fill(gone, 0.0), out=after)
    return out.flatten(0, 1)[:rows]


def _stretches_back(gradient: Tensor, z: Tensor, reset: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """What arrives at every h', and what arrives at the start."""
    rows = len(z)
    gradient, z, reset = (_cut(values, chunk) for values in (gradient, z, reset))
    through = torch.empty_like(gradient)
    steps = zip(gradient.unbind(1), z.unbind(1), _columns(reset), through.unbind(1), strict=True)
    later = torch.zeros_like(gradient[:, 0])
    for given, share, forget, arrived in reversed(list(steps)):
        torch.add(given, later, out=arrived)
        later = torch.addcmul(arrived, arrived, share, value=-1)
        if forget is not None:
            later.masked_fill_(forget, 0.0)
    if len(through) > 1:
        # A stretch's row t hears from the next stretch through the 1 - z of the rows t + 1, t + 2, ... of its
        # own, if none of them forgets.
        kept = _shifted(1 - z, 1.0).flip(1).cumprod(1).flip(1)
        crossed = _crossed(_shifted(reset, False).flip(1)).flip(1)
        for c in reversed(range(len(through) - 1)):
            heard = (kept[c] * later[c + 1]).masked_fill_(crossed[c], 0.0)
            through[c] += heard
            later[c] += (heard[0] * (1 - z[c, 0])).masked_fill_(reset[c, 0, :, None], 0.0)
    return through.flatten(0, 1)[:rows], later[0]


def _first(values: Tensor, start: Tensor) -> Tensor:
    """What each stretch starts from: the first from `start`, the others from zero until they hear from those
    before.
    """
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
    return torch.cat([values[:, 1:], torch.full_like(values[:, :1], last)], 1)


def _columns(reset: Tensor) -> list[Tensor | None]:
    """For each row of the stretches, who forgets, [stretches, B, 1], or None."""
    return [
        who if anyone else None
        for who, anyone in zip(reset[..., None].unbind(1), reset.any(2).any(0).tolist(), strict=True)
    ]

"""GRU: the gated recurrent unit of Cho et al. (2014), as torch computes it.

    r, z = sigmoid(W x + U h + b)        reset and update gates
    n    = tanh(W x + b + r (U h + b'))  candidate
    h'   = n + z (h - n)

On the CPU a pass over rows is written out here, since nn.GRU keeps a graph of a dozen nodes per row:
everything but U h is one product for all rows, and of the way back only what must wait for the next row is
done row by row. It takes two thirds of the time. Elsewhere cuDNN's nn.GRU is faster than a loop.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.dense import outer, product


class GRU(Memory):
    """One layer of gated recurrent units."""

    stores_state = True
    in_long_calls = False

    def __init__(self, config: MemoryConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.gru = nn.GRU(in_dim, config.hidden_size)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                continue
            for gate in parameter.data.chunk(3):
                nn.init.orthogonal_(gate)
        self._weights = self.gru.all_weights[0]

    def initial_state(self, batch_size: int) -> State:
        """Zeros."""
        return {"hidden": torch.zeros(batch_size, self.out_dim, device=next(self.parameters()).device)}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """A step is one call of the cell; many rows are one loop on the CPU, and elsewhere one call from each
        row where some column resets.
        """
        hidden = state["hidden"]
        if len(x) == 1:
            hidden = torch.gru_cell(x[0], _forget(hidden, reset[0]), *self._weights)
            return hidden[None], {"hidden": hidden}
        if x.is_cpu:
            out = _Unroll.apply(x, hidden, reset, *self._weights)
            return out, {"hidden": out[-1]}
        cuts = sorted({0, len(x), *torch.nonzero(reset.any(1)).flatten().tolist()})
        outs: list[Tensor] = []
        for start, stop in pairwise(cuts):
            out, last = self.gru(x[start:stop], _forget(hidden, reset[start])[None])
            outs.append(out)
            hidden = last[0]
        return torch.cat(outs), {"hidden": hidden}


def _forget(hidden: Tensor, reset: Tensor) -> Tensor:
    return hidden.masked_fill(reset[:, None], 0.0)


class _Unroll(torch.autograd.Function):
    """x [T, B, D], hidden [B, H], reset [T, B] and torch's weights, gates in the order r, z, n -> [T, B, H]."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        x: Tensor,
        hidden: Tensor,
        reset: Tensor,
        weight_x: Tensor,
        weight_h: Tensor,
        bias_x: Tensor,
        bias_h: Tensor,
    ) -> Tensor:
        width = hidden.shape[1]
        gates, news = product(x, weight_x, bias_x).split((2 * width, width), -1)  # become r and z, and n
        from_olds = torch.empty_like(news)
        out = torch.empty_like(news)
        forgets = _columns(reset)
        rows = zip(
            forgets,
            gates.unbind(),
            gates[..., :width].unbind(),
            gates[..., width:].unbind(),
            news.unbind(),
            from_olds.unbind(),
            out.unbind(),
            strict=True,
        )
        old = hidden
        for forget, both, r, z, new, from_old, after in rows:
            if forget is not None:
                old = old.masked_fill(forget, 0.0)
            from_h = product(old, weight_h, bias_h)
            both.add_(from_h[:, : 2 * width]).sigmoid_()
            from_old.copy_(from_h[:, 2 * width :])
            new.addcmul_(r, from_old).tanh_()
            old = torch.lerp(new, old, z, out=after)
        ctx.forgets = forgets
        ctx.save_for_backward(x, hidden, weight_x, weight_h, gates, news, from_olds, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, hidden, weight_x, weight_h, gates, news, from_olds, out = ctx.saved_tensors
        width, back = out.shape[-1], weight_h.t()
        to_h, to_news = gates.new_empty(*out.shape[:2], 3 * width), torch.empty_like(out)
        views = [
            *gates.split(width, -1),
            news,
            from_olds,
            out,
            gradient,
            to_h,
            *to_h.split(width, -1),
            to_news,
        ]
        later = torch.zeros_like(hidden)
        for forget, (r, z, n, from_old, after, given, at_h, at_r, at_z, at_old, at_n) in reversed(
            list(zip(ctx.forgets, zip(*(view.unbind() for view in views), strict=True), strict=True))
        ):
            whole = later.add_(given)
            kept = whole * z
            fresh = whole - kept
            torch.ops.aten.tanh_backward.grad_input(fresh, n, grad_input=at_n)
            torch.mul(at_n, r, out=at_old)
            torch.ops.aten.sigmoid_backward.grad_input(at_n * from_old, r, grad_input=at_r)
            torch.mul(fresh, after - n, out=at_z)  # (h - n) z (1 - z) dL/dh'
            later = kept.add_(product(at_h, back))
            if forget is not None:
                later.masked_fill_(forget, 0.0)
        olds = torch.cat([hidden[None], out[:-1]])
        for t, forget in enumerate(ctx.forgets):
            if forget is not None:
                olds[t].masked_fill_(forget, 0.0)
        weights_h, biases_h = outer(to_h, olds), to_h.sum((0, 1))
        to_h[..., 2 * width :] = to_news  # and so becomes what goes to x
        return (
            product(to_h, weight_x.t()) if ctx.needs_input_grad[0] else None,
            later,
            None,
            outer(to_h, x),
            weights_h,
            torch.cat([biases_h[: 2 * width], to_news.sum((0, 1))]),
            biases_h,
        )


def _columns(reset: Tensor) -> list[Tensor | None]:
    """For each row, the columns that forget, [B, 1], or None."""
    return [
        columns if any_of_them else None
        for columns, any_of_them in zip(reset[..., None].unbind(), reset.any(1).tolist(), strict=True)
    ]

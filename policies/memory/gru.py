"""GRU: the gated recurrent unit of Cho et al. (2014), as torch computes it.

    r, z = sigmoid(W x + U h + b)        reset and update gates
    n    = tanh(W x + b + r (U h + b'))  candidate
    h'   = n + z (h - n)

On the CPU a pass over rows is written out here, since nn.GRU keeps a graph of a dozen nodes per row.
Everything but U h is one product for all rows, and of the way back only what must wait for the next row is
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
from policies.nn.scan import forgetting_columns


class GRU(Memory):
    """One layer of gated recurrent units; its output is its hidden state."""

    stores_state = True
    in_long_calls = False

    def __init__(self, config: MemoryConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.gru = nn.GRU(in_dim, config.hidden_size)
        # Orthogonal weights, gate by gate, let a gradient pass many rows without growing or vanishing.
        for name, parameter in self.gru.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                continue
            for gate in parameter.data.chunk(3):
                nn.init.orthogonal_(gate)
        self._weights = self.gru.all_weights[0]

    def initial_state(self, batch_size: int) -> State:
        """Zeros, [B, H]."""
        return {"hidden": torch.zeros(batch_size, self.out_dim, device=next(self.parameters()).device)}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """One call of the cell for one row; for many, a loop on the CPU and nn.GRU elsewhere."""
        hidden = state["hidden"]
        # Acting: one row, and no graph.
        if len(x) == 1:
            hidden = torch.gru_cell(x[0], _forget(hidden, reset[0]), *self._weights)
            return hidden[None], {"hidden": hidden}
        # Learning on the CPU: the loop below, which handles resets by itself.
        if x.is_cpu:
            out = _Unroll.apply(x, hidden, reset, *self._weights)
            return out, {"hidden": out[-1]}
        # Learning elsewhere: nn.GRU knows no resets, so time is cut at each row where some column resets.
        cuts = sorted({0, len(x), *torch.nonzero(reset.any(1)).flatten().tolist()})
        outs: list[Tensor] = []
        for start, stop in pairwise(cuts):
            out, last = self.gru(x[start:stop], _forget(hidden, reset[start])[None])
            outs.append(out)
            hidden = last[0]
        return torch.cat(outs), {"hidden": hidden}


def _forget(hidden: Tensor, reset: Tensor) -> Tensor:
    """[B, H] zeros where a column resets."""
    return hidden.masked_fill(reset[:, None], 0.0)


class _Unroll(torch.autograd.Function):
    """x [T, B, D], hidden [B, H], reset [T, B] -> out [T, B, H]; torch orders its gates r, z, n."""

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
        # W x + b of all rows at once. In the loop, `gates` becomes r and z, and `candidates` becomes n.
        gates, candidates = product(x, weight_x, bias_x).split((2 * width, width), -1)
        # U h + b' of the candidate, which the way back needs once more.
        from_olds = torch.empty_like(candidates)
        out = torch.empty_like(candidates)
        forgets = forgetting_columns(reset)

        # Views of every row, made in one call each: to index tensors row by row would cost more.
        gate_rows, candidate_rows = gates.unbind(), candidates.unbind()
        r_rows, z_rows = gates[..., :width].unbind(), gates[..., width:].unbind()
        from_old_rows, out_rows = from_olds.unbind(), out.unbind()
        old = hidden
        for t, forget in enumerate(forgets):
            # A reset forgets h before the row is read.
            if forget is not None:
                old = old.masked_fill(forget, 0.0)
            from_h = product(old, weight_h, bias_h)
            # r, z = sigmoid(W x + U h + b)
            gate_rows[t].add_(from_h[:, : 2 * width]).sigmoid_()
            # n = tanh(W x + b + r (U h + b'))
            from_old_rows[t].copy_(from_h[:, 2 * width :])
            n = candidate_rows[t].addcmul_(r_rows[t], from_old_rows[t]).tanh_()
            # h' = n + z (h - n)
            old = torch.lerp(n, old, z_rows[t], out=out_rows[t])
        ctx.forgets = forgets
        ctx.save_for_backward(x, hidden, weight_x, weight_h, gates, candidates, from_olds, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, hidden, weight_x, weight_h, gates, candidates, from_olds, out = ctx.saved_tensors
        width = out.shape[-1]
        # Gradients at the sums inside the gates, in the order r, z, n. What arrives at the candidate differs
        # for its two parts: `to_h` holds that of U h + b', `to_candidates` that of W x + b.
        to_h = gates.new_empty(*out.shape[:2], 3 * width)
        to_candidates = torch.empty_like(out)
        later = _rows_backward(
            ctx.forgets, gates, candidates, from_olds, out, gradient, weight_h, to_h, to_candidates
        )

        # The gradients of U and b' in one product over all rows. The h that each row read is the output of
        # the row before, or zero where it was forgotten.
        olds = torch.cat([hidden[None], out[:-1]])
        for t, forget in enumerate(ctx.forgets):
            if forget is not None:
                olds[t].masked_fill_(forget, 0.0)
        to_weight_h, to_bias_h = outer(to_h, olds), to_h.sum((0, 1))
        to_bias_x = torch.cat([to_bias_h[: 2 * width], to_candidates.sum((0, 1))])

        # With the candidate's other part in its place, `to_h` becomes the gradient at W x + b.
        to_h[..., 2 * width :] = to_candidates
        to_x: Tensor | None = None
        if ctx.needs_input_grad[0]:
            to_x = product(to_h, weight_x.t())
        return to_x, later, None, outer(to_h, x), to_weight_h, to_bias_x, to_bias_h


def _rows_backward(
    forgets: list[Tensor | None],
    gates: Tensor,
    candidates: Tensor,
    from_olds: Tensor,
    out: Tensor,
    gradient: Tensor,
    weight_h: Tensor,
    to_h: Tensor,
    to_candidates: Tensor,
) -> Tensor:
    """Fill `to_h` and `to_candidates` from the last row to the first; returns the gradient of the first h."""
    back = weight_h.t()
    width = out.shape[-1]
    r_rows, z_rows = (part.unbind() for part in gates.split(width, -1))
    n_rows, from_old_rows = candidates.unbind(), from_olds.unbind()
    out_rows, given_rows = out.unbind(), gradient.unbind()
    to_h_rows, to_n_rows = to_h.unbind(), to_candidates.unbind()
    to_r_rows, to_z_rows, to_old_rows = (part.unbind() for part in to_h.split(width, -1))

    later = torch.zeros_like(out[0])
    for t in reversed(range(len(forgets))):
        r, n = r_rows[t], n_rows[t]
        # dL/dh' comes from this row's output and from the row after it.
        total = later.add_(given_rows[t])
        # h' = z h + (1 - z) n: the shares of h and of n
        to_old_share = total * z_rows[t]
        to_n_share = total - to_old_share
        # through n = tanh(...) to W x + b, and times r to U h + b'
        torch.ops.aten.tanh_backward.grad_input(to_n_share, n, grad_input=to_n_rows[t])
        torch.mul(to_n_rows[t], r, out=to_old_rows[t])
        # through r = sigmoid(...)
        torch.ops.aten.sigmoid_backward.grad_input(
            to_n_rows[t] * from_old_rows[t], r, grad_input=to_r_rows[t]
        )
        # through z = sigmoid(...): (h - n) z (1 - z) dL/dh', where z (h - n) is h' - n
        torch.mul(to_n_share, out_rows[t] - n, out=to_z_rows[t])
        # to h: what passed by directly, and what passed through U; none of it where the row forgot
        later = to_old_share.add_(product(to_h_rows[t], back))
        forget = forgets[t]
        if forget is not None:
            later.masked_fill_(forget, 0.0)
    return later

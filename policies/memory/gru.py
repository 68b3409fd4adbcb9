"""GRU: the gated recurrent unit of Cho et al. (2014), as torch computes it."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from policies.memory.base import Memory, MemoryConfig, State


class GRU(Memory):
    """One layer of gated recurrent units."""

    stores_state = True

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
        """A step is one call of the cell, cheaper than nn.GRU; otherwise time is cut where some column resets, so whole trials are one call."""
        hidden = state["hidden"]
        if len(x) == 1:
            hidden = torch.gru_cell(x[0], _forget(hidden, reset[0]), *self._weights)
            return hidden[None], {"hidden": hidden}
        cuts = sorted({0, len(x), *torch.nonzero(reset.any(1)).flatten().tolist()})
        outs: list[Tensor] = []
        for start, stop in pairwise(cuts):
            out, last = self.gru(x[start:stop], _forget(hidden, reset[start])[None])
            outs.append(out)
            hidden = last[0]
        return outs[0] if len(outs) == 1 else torch.cat(outs), {"hidden": hidden}


def _forget(hidden: Tensor, reset: Tensor) -> Tensor:
    return hidden.masked_fill(reset[:, None], 0.0)

"""LSTM: long short-term memory (Hochreiter and Schmidhuber, 1997) with a forget gate (Gers et al., 2000).

i, f, o = sigmoid(W x + U h + b)     input, forget and output gates
g       = tanh(W x + U h + b)        candidate
c'      = f c + i g                  the cell
h'      = o tanh(c')                 the hidden state, which is the output
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from policies.memory.base import Memory, MemoryConfig, State
from utils.options import option


@dataclass
class LSTMConfig(MemoryConfig):
    """Options of the LSTM."""

    # A forget gate that starts open lets gradients through from the start (Jozefowicz et al., 2015).
    forget_bias: float = option(1.0, "first bias of the forget gate; a larger one remembers longer")


class LSTM(Memory):
    """One layer of long short-term memory; its output is the hidden part of its state."""

    Config = LSTMConfig
    stores_state = True

    def __init__(self, config: LSTMConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.lstm = nn.LSTM(in_dim, config.hidden_size)
        # Orthogonal weights, gate by gate, let a gradient pass many rows without growing or vanishing.
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                continue
            for gate in parameter.data.chunk(4):
                nn.init.orthogonal_(gate)
        self._weights = self.lstm.all_weights[0]
        # Torch adds two biases, with gates in the order input, forget, cell, output: setting one is enough.
        forget_gate = slice(config.hidden_size, 2 * config.hidden_size)
        self.lstm.get_parameter("bias_ih_l0").data[forget_gate] = config.forget_bias

    def initial_state(self, batch_size: int) -> State:
        """Zeros, [B, H] each."""
        zeros = torch.zeros(2, batch_size, self.out_dim, device=next(self.parameters()).device)
        return {"hidden": zeros[0], "cell": zeros[1]}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """One call of the cell for one row; for many, one call of nn.LSTM from reset to reset."""
        hidden, cell = state["hidden"], state["cell"]
        # Acting: one row, and no graph.
        if len(x) == 1:
            forgotten = [_forget(hidden, reset[0]), _forget(cell, reset[0])]
            hidden, cell = torch.lstm_cell(x[0], forgotten, *self._weights)
            return hidden[None], {"hidden": hidden, "cell": cell}
        # Learning: nn.LSTM knows no resets, so time is cut at each row where some column resets. Whole trials
        # side by side are one call.
        cuts = sorted({0, len(x), *torch.nonzero(reset.any(1)).flatten().tolist()})
        outs: list[Tensor] = []
        for start, stop in pairwise(cuts):
            # Torch wants its states with the layer in front, [1, B, H]; ours are batch-first.
            forgotten = (_forget(hidden, reset[start])[None], _forget(cell, reset[start])[None])
            out, (hidden, cell) = self.lstm(x[start:stop], forgotten)
            outs.append(out)
            hidden, cell = hidden[0], cell[0]
        out = outs[0] if len(outs) == 1 else torch.cat(outs)  # a single piece needs no copy
        return out, {"hidden": hidden, "cell": cell}


def _forget(state: Tensor, reset: Tensor) -> Tensor:
    return state.masked_fill(reset[:, None], 0.0)

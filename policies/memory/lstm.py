"""LSTM: long short-term memory of Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al.
(2000), as torch computes it.
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

    forget_bias: float = option(
        1.0, "bias of the forget gate at first: the larger, the longer it remembers (Jozefowicz et al., 2015)"
    )


class LSTM(Memory):
    """One layer of long short-term memory; its output is the hidden part of its state."""

    Config = LSTMConfig
    stores_state = True

    def __init__(self, config: LSTMConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.lstm = nn.LSTM(in_dim, config.hidden_size)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                continue
            for gate in parameter.data.chunk(4):
                nn.init.orthogonal_(gate)
        self._weights = self.lstm.all_weights[0]
        # Torch adds two biases, its gates in the order input, forget, cell, output; one of them is enough.
        self.lstm.get_parameter("bias_ih_l0").data[config.hidden_size : 2 * config.hidden_size] = (
            config.forget_bias
        )

    def initial_state(self, batch_size: int) -> State:
        """Zeros."""
        zeros = torch.zeros(2, batch_size, self.out_dim, device=next(self.parameters()).device)
        return {"hidden": zeros[0], "cell": zeros[1]}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """A step is one call of the cell; otherwise time is cut where some column resets, so whole trials are
        one call.
        """
        hidden, cell = state["hidden"], state["cell"]
        if len(x) == 1:
            hidden, cell = torch.lstm_cell(
                x[0], [_forget(hidden, reset[0]), _forget(cell, reset[0])], *self._weights
            )
            return hidden[None], {"hidden": hidden, "cell": cell}
        cuts = sorted({0, len(x), *torch.nonzero(reset.any(1)).flatten().tolist()})
        outs: list[Tensor] = []
        for start, stop in pairwise(cuts):
            out, (hidden, cell) = self.lstm(
                x[start:stop], (_forget(hidden, reset[start])[None], _forget(cell, reset[start])[None])
            )
            outs.append(out)
            hidden, cell = hidden[0], cell[0]
        return outs[0] if len(outs) == 1 else torch.cat(outs), {"hidden": hidden, "cell": cell}


def _forget(remembered: Tensor, reset: Tensor) -> Tensor:
    return remembered.masked_fill(reset[:, None], 0.0)

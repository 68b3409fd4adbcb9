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
from torch.nn.functional import linear

from policies.memory.base import Memory, MemoryConfig, State
from policies.memory.segments import Segments
from utils.options import option

# With more rows than this at which some column resets, segments are read side by side.
MOST_CUTS = 20


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
        # side by side are one call. Where trials are short that would be a call for each row or two.
        if int(reset.any(1).sum()) > MOST_CUTS:
            return self._by_segments(x, hidden, cell, Segments.of(reset), reset)
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

    def _by_segments(
        self, x: Tensor, hidden: Tensor, cell: Tensor, segments: Segments, reset: Tensor
    ) -> tuple[Tensor, State]:
        """The same numbers to the last bits: all segments side by side, one call for each band of them."""
        # A segment starts empty, but for the first one of a column that does not reset at once.
        goes_on = (segments.start == 0) & ~reset[0, segments.column]
        hidden, cell = (
            state[segments.column].masked_fill(~goes_on[:, None], 0.0) for state in (hidden, cell)
        )
        flat, outs, rows = x.flatten(0, 1), list[Tensor](), list[Tensor]()
        last_cells, last_columns = list[Tensor](), list[Tensor]()
        begin = 0
        for band in segments.bands():
            length, alive = band.inside.shape
            hidden, cell = hidden[:alive], cell[:alive]
            inputs = flat.index_select(0, band.rows.flatten()).unflatten(0, band.rows.shape)
            out, (next_hidden, next_cell) = self.lstm(inputs, (hidden[None], cell[None]))
            outs.append(out[band.inside])
            rows.append(band.rows[band.inside])

            # The columns that end in this band leave their cell, which nn.LSTM gives after the band alone.
            ends = (segments.last[:alive] & (segments.length[:alive] <= begin + length)).nonzero().squeeze(1)
            before = torch.cat([hidden[None], out[:-1]])
            last_cells.append(self._cells(inputs, before, cell, band.inside, ends))
            last_columns.append(segments.column[ends])
            hidden, cell, begin = next_hidden[0], next_cell[0], begin + length

        # Back to the places of the rows, and of the columns.
        out = torch.cat(outs)
        out = torch.empty_like(out).index_copy(0, torch.cat(rows), out).unflatten(0, x.shape[:2])
        cells = torch.cat(last_cells)
        cells = torch.empty_like(cells).index_copy(0, torch.cat(last_columns), cells)
        return out, {"hidden": out[-1], "cell": cells}

    def _cells(self, x: Tensor, before: Tensor, cell: Tensor, inside: Tensor, ends: Tensor) -> Tensor:
        """The cells of the segments `ends` after their last row, from the hidden states before each row."""
        weight_x, weight_h, bias_x, bias_h = self._weights
        gates = linear(x[:, ends], weight_x, bias_x) + linear(before[:, ends], weight_h, bias_h)
        enter, forget, candidate, _ = gates.chunk(4, -1)
        added = enter.sigmoid() * candidate.tanh()
        cell = cell[ends]
        for kept, new, counts in zip(forget.sigmoid(), added, inside[:, ends, None], strict=True):
            cell = torch.where(counts, kept * cell + new, cell)
        return cell


def _forget(state: Tensor, reset: Tensor) -> Tensor:
    return state.masked_fill(reset[:, None], 0.0)

"""A diagonal recurrence: gates that read the row alone, so that learning is matrix products and one scan.

    z, c, g = W norm(u) + b
    h'      = h + sigmoid(z) (c - h)             every channel for itself, with no weights from h to h'
    u'      = u + V (h' silu(g))                 the channels mix, beside the row that goes on

The cell is that of minGRU (Feng et al., 2024), the one with the fewest operations of the gated diagonal
recurrences: h' lies between h and c, whatever the weights are. As in the others (RG-LRU, Mamba) the share of
h that a channel retains, 1 - sigmoid(z), starts near one and differs from channel to channel: memories of
`quickest` to `longest` rows, log-uniform. Gates that do not see h cannot tell one past from another; in a
second layer they can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, silu

from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.dense import dense
from policies.nn.scan import blend
from utils.options import option


@dataclass
class DiagonalRecurrenceConfig(MemoryConfig):
    """Options of the diagonal recurrence."""

    num_layers: int = option(1, "recurrences, each reading the one below it", low=1)
    quickest: float = option(10.0, "rows that the quickest channel remembers at first", above=1)
    longest: float = option(1000.0, "rows that the slowest channel remembers at first", above=1)


class DiagonalRecurrence(Memory):
    """Layers of gated diagonal recurrences, each with its norm, its mixing of channels and its skip."""

    Config = DiagonalRecurrenceConfig
    stores_state = True

    def __init__(self, config: DiagonalRecurrenceConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.enter = nn.Linear(in_dim, self.out_dim)
        self.layers = nn.ModuleList([_Layer(config) for _ in range(config.num_layers)])
        self.norm = nn.LayerNorm(self.out_dim)

    @classmethod
    def problems(cls, config: DiagonalRecurrenceConfig) -> Iterator[str]:
        """The quickest channel cannot be slower than the slowest."""
        if config.quickest > config.longest:
            yield (
                f"memory.quickest={config.quickest} is more than memory.longest={config.longest}: "
                "exchange them."
            )

    def initial_state(self, batch_size: int) -> State:
        """Zeros, [B, layers, H]."""
        shape = (batch_size, len(self.layers), self.out_dim)
        return {"hidden": torch.zeros(shape, device=self.norm.weight.device)}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """All rows of a layer before the next layer: only the scan inside a layer runs over time."""
        u = dense(x, self.enter.weight, self.enter.bias)
        last: list[Tensor] = []
        for layer, hidden in zip(self.layers, state["hidden"].unbind(1), strict=True):
            u, hidden = layer(u, hidden, reset)
            last.append(hidden)
        # The residual stream is normalised once more, as its sum grows with every layer.
        out = layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias)
        return out, {"hidden": torch.stack(last, 1)}


class _Layer(nn.Module):
    """One recurrence with its norm, its gates, and the mixing of its channels."""

    def __init__(self, config: DiagonalRecurrenceConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.norm = nn.LayerNorm(width)
        # z, c and g, one below the other.
        self.read = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        # The first memories, log-uniform in rows: with the bias -log(n - 1) a gate starts at z = 1 / n.
        nn.init.zeros_(self.read.bias)
        rows = torch.empty(width).uniform_(math.log(config.quickest), math.log(config.longest)).exp()
        self.read.bias.data[:width] = -torch.log(rows - 1)
        # A mean over many rows is small: unscaled, the content of slow channels would be learned last. RG-LRU
        # scales its input by sqrt(1 - a^2) for the same end.
        self.mix.weight.data *= torch.sqrt(2 * rows - 1)

    def forward(self, u: Tensor, hidden: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """u [T, B, H], hidden [B, H] -> u' and the last hidden."""
        normed = layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias)
        # z, c, g = W norm(u) + b, and then h' = h + sigmoid(z) (c - h)
        if len(u) == 1:
            # Acting: one product, and one step of the recurrence.
            z, candidate, gate = linear(normed, self.read.weight, self.read.bias).chunk(3, -1)
            hiddens = torch.lerp(hidden.masked_fill(reset[0, :, None], 0.0), candidate, z.sigmoid())
        else:
            # Learning: three products, as the gradient of one, cut in three, would have to be put together
            # again; and a scan over all rows.
            weights, biases = self.read.weight.chunk(3), self.read.bias.chunk(3)
            z, candidate, gate = map(dense, [normed] * 3, weights, biases)
            hiddens = blend(candidate, z, hidden, reset)
        # u' = u + V (h' silu(g)): a gate chooses channels, and they mix.
        return u + dense(hiddens * silu(gate), self.mix.weight, self.mix.bias), hiddens[-1]

"""A diagonal recurrence: gates that read the row alone, so that a pass over rows is matrix products and one
blend over time.

    z, c, g = W norm(u) + b
    h'      = h + sigmoid(z) (c - h)             every channel for itself, with no weights from h to h'
    u'      = u + V (h' silu(g))                 the channels mix, beside the row that goes on

The cell is that of minGRU (Feng et al., 2024), of the gated diagonal recurrences the one with the fewest
operations: h' lies between h and c, whatever the weights are. As in the others (RG-LRU, Mamba) what a channel
keeps of h, 1 - sigmoid(z), begins near one and differs from channel to channel: memories of `quickest` to
`longest` rows, log-uniform. Gates that see no h cannot tell one past from another; in a second layer they
can.
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

    num_layers: int = option(1, "recurrences, each reading what the one below remembers", low=1)
    quickest: float = option(
        10.0, "rows after which the quickest channel has forgotten most, at first", above=1
    )
    longest: float = option(1000.0, "the same of the slowest channel", above=1)


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
        """How long it remembers."""
        if config.quickest > config.longest:
            yield f"memory.quickest={config.quickest} is more than memory.longest={config.longest}: exchange them."

    def initial_state(self, batch_size: int) -> State:
        """Zeros, [B, layers, H]."""
        return {
            "hidden": torch.zeros(batch_size, len(self.layers), self.out_dim, device=self.norm.weight.device)
        }

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """All rows of a layer before the next layer."""
        u = dense(x, self.enter.weight, self.enter.bias)
        last: list[Tensor] = []
        for layer, hidden in zip(self.layers, state["hidden"].unbind(1), strict=True):
            u, hidden = layer(u, hidden, reset)
            last.append(hidden)
        return layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias), {
            "hidden": torch.stack(last, 1)
        }


class _Layer(nn.Module):
    def __init__(self, config: DiagonalRecurrenceConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        nn.init.zeros_(self.read.bias)
        rows = torch.empty(width).uniform_(math.log(config.quickest), math.log(config.longest)).exp()
        self.read.bias.data[:width] = -torch.log(rows - 1)  # sigmoid of it is 1 / rows
        # A mean over many rows is small: as it is, what a slow channel knows would be learned last. RG-LRU's
        # sqrt(1 - a^2) c, in another place.
        self.mix.weight.data *= torch.sqrt(2 * rows - 1)

    def forward(self, u: Tensor, hidden: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        normed = layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias)
        if len(u) == 1:
            logit, candidate, gate = linear(normed, self.read.weight, self.read.bias).chunk(3, -1)
            hiddens = torch.lerp(hidden.masked_fill(reset[0, :, None], 0.0), candidate, logit.sigmoid())
        else:
            # Three products: the gradient of one, cut in three, would have to be put together again.
            logit, candidate, gate = map(
                dense, [normed] * 3, self.read.weight.chunk(3), self.read.bias.chunk(3)
            )
            hiddens = blend(candidate, logit, hidden, reset)
        return u + dense(hiddens * silu(gate), self.mix.weight, self.mix.bias), hiddens[-1]

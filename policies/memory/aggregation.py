"""Aggregation: the sum, mean or maximum of what the rows since the reset say, each read by itself; the order
in which they came does not matter.

After DeepSets (Zaheer et al., 2017) and the aggregators of Beck et al. (2024): what a row has said is never
overwritten, and the path of its gradient is as short after a thousand rows as after one. What is lost is the
order, which a task that shows in its rewards and transitions does not need.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.dense import dense
from policies.nn.scan import blend, running_max
from utils.options import option


class Pooling(Enum):
    """How rows are put together."""

    sum = "sum"
    mean = "mean"
    max = "max"


@dataclass
class AggregationConfig(MemoryConfig):
    """Options of the aggregation."""

    pooling: Pooling = option(
        Pooling.mean, "how rows are put together: sum (it counts), mean (it estimates) or max (it notices)"
    )


class Aggregation(Memory):
    """Two layers read a row, all rows of the trial are pooled, and one layer reads the pool."""

    Config = AggregationConfig
    stores_state = True

    def __init__(self, config: AggregationConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        self.pooling = config.pooling
        self.enter = nn.Linear(in_dim, self.out_dim)
        self.before = nn.Linear(self.out_dim, self.out_dim)
        self.after = nn.Linear(self.out_dim, self.out_dim)
        for layer in (self.enter, self.before, self.after):
            nn.init.kaiming_normal_(
                layer.weight, nonlinearity="relu"
            )  # torch's own is smaller, and a row's share of the pool is small already
            nn.init.zeros_(layer.bias)

    def initial_state(self, batch_size: int) -> State:
        """An empty pool."""
        device = self.after.weight.device
        return {
            "pool": torch.zeros(batch_size, self.out_dim, device=device),
            "rows": torch.zeros(batch_size, device=device),
        }

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """A pool is kept as a mean, which stays in the range of its rows, or as a maximum; rows are read as
        numbers >= 0, so that empty is zero.
        """
        for layer in (self.enter, self.before):
            x = dense(x, layer.weight, layer.bias).relu()
        rows = _rows_since(reset, state["rows"])
        if self.pooling is Pooling.max:
            pool = running_max(x, state["pool"], reset)
        else:
            pool = blend(x, -torch.log(rows - 1)[..., None], state["pool"], reset)  # z = 1 / rows
        read = pool * rows[..., None] if self.pooling is Pooling.sum else pool
        return dense(read, self.after.weight, self.after.bias).relu(), {"pool": pool[-1], "rows": rows[-1]}


def _rows_since(reset: Tensor, before: Tensor) -> Tensor:
    """[T, B] how many rows there are since the reset, this one included."""
    count = torch.arange(1, len(reset) + 1, device=reset.device)[:, None]
    since = count - 1 - torch.where(reset, count - 1, -1).cummax(0).values.clamp(min=0)
    return torch.where(reset.cumsum(0) > 0, since + 1, count + before)

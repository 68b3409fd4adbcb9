"""Aggregation: the sum, mean or maximum over the rows since the reset, each read by itself.

After DeepSets (Zaheer et al., 2017) and the aggregators of Beck et al. (2024). What a row has added is never
overwritten, and the path of its gradient is as short after a thousand rows as after one. The order of the
rows is lost, which a task that shows in its rewards and transitions does not need.

    e_t = relu(W_2 relu(W_1 x_t))            every row by itself, >= 0
    p_t = sum, mean or max of e over the rows since the reset
    out = relu(W_3 p_t)
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
    """The operation that puts rows together."""

    sum = "sum"
    mean = "mean"
    max = "max"


@dataclass
class AggregationConfig(MemoryConfig):
    """Options of the aggregation: a sum counts, a mean estimates, and a maximum notices."""

    pooling: Pooling = option(Pooling.mean, "how rows are put together: sum, mean or max")


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
        # Torch's own start is smaller than He's, and a row's share of the pool is small already.
        for layer in (self.enter, self.before, self.after):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def initial_state(self, batch_size: int) -> State:
        """An empty pool, [B, H], and the number of rows in it, [B]."""
        device = self.after.weight.device
        return {
            "pool": torch.zeros(batch_size, self.out_dim, device=device),
            "rows": torch.zeros(batch_size, device=device),
        }

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Read all rows, pool them from reset to reset, and read the pools."""
        # Every row by itself. The result is >= 0, so that an empty pool is zero for a maximum too.
        for layer in (self.enter, self.before):
            x = dense(x, layer.weight, layer.bias).relu()
        rows = _rows_since(reset, state["rows"])
        # The state is a mean, which stays in the range of its rows however many there are, or a maximum.
        if self.pooling is Pooling.max:
            pool = running_max(x, state["pool"], reset)
        else:
            # p' = p + (e - p) / n is a blend with z = 1 / n, and sigmoid(-log(n - 1)) = 1 / n.
            pool = blend(x, -torch.log(rows - 1)[..., None], state["pool"], reset)
        # A sum is n times the mean.
        pooled = pool * rows[..., None] if self.pooling is Pooling.sum else pool
        out = dense(pooled, self.after.weight, self.after.bias).relu()
        return out, {"pool": pool[-1], "rows": rows[-1]}


def _rows_since(reset: Tensor, before: Tensor) -> Tensor:
    """[T, B] the number of rows since the reset, the present one included."""
    count = torch.arange(1, len(reset) + 1, device=reset.device)[:, None]
    # The row of the latest reset so far: a running maximum, as rows are numbered upwards.
    since = count - 1 - torch.where(reset, count - 1, -1).cummax(0).values.clamp(min=0)
    # Before the first reset of this call, the rows of the state count too.
    return torch.where(reset.cumsum(0) > 0, since + 1, count + before)

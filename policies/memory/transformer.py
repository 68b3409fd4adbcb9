"""Transformer: causal self-attention over all rows since the reset, with what earlier rows are asked for kept
in a cache while acting.

    u' = u  + O attention(Q n, K n, V n),  n = norm(u)        pre-norm (Xiong et al., 2020), so that it learns without a warm-up
    u''= u' + D relu(U norm(u'))
    q . k of rows i and j depends on i - j alone: both are rotated by their position since the reset (rotary; Su et al., 2021)

Acting: every slot has its own position and writes its key and value in its own row of the cache, in place; a
reset empties that slot's cache and no other. Learning: rows are put into sequences, one per column and reset,
side by side, so what was before a reset is not masked but absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.dense import dense
from utils.options import option

_SLOWEST_TURN = 10_000.0
"""Rows to a radian of the slowest pair of channels, as published."""


@dataclass
class TransformerConfig(MemoryConfig):
    """Options of the transformer."""

    num_layers: int = option(2, "layers of attention, each with its feed-forward part", low=1)
    num_heads: int = option(2, "heads of attention in each layer", low=1)
    head_size: int = option(64, "width of a head, even", low=2)
    feed_forward: int = option(2, "width of the feed-forward part, in hidden_size", low=1)
    max_rows: int | None = option(
        None, "rows that the cache has room for; null: those of the run's longest trial, k (H + 1)", low=1
    )


class Transformer(Memory):
    """Layers of causal attention over the trial so far."""

    Config = TransformerConfig
    stores_state = False

    def __init__(self, config: TransformerConfig, in_dim: int) -> None:
        super().__init__(config, in_dim)
        self.out_dim = config.hidden_size
        if config.max_rows is None:
            raise ValueError(
                "memory.max_rows is what Transformer.fitted makes it: the rows of the longest trial."
            )
        self.max_rows = config.max_rows
        self._width = config.num_heads * config.head_size
        self.enter = nn.Linear(in_dim, self.out_dim)
        self.layers = nn.ModuleList([_Layer(config) for _ in range(config.num_layers)])
        self.norm = nn.LayerNorm(self.out_dim)
        turns = _SLOWEST_TURN ** -(torch.arange(0, config.head_size, 2) / config.head_size)
        self.register_buffer("turns", turns, persistent=False)

    @classmethod
    def problems(cls, config: TransformerConfig) -> Iterator[str]:
        """Positions."""
        if config.head_size % 2:
            yield f"memory.head_size={config.head_size} is odd, and positions turn pairs of channels: make it even."

    @classmethod
    def fitted(cls, config: TransformerConfig, rows: int) -> TransformerConfig:
        """The cache holds a trial."""
        if config.max_rows is not None and config.max_rows < rows:
            raise ValueError(
                f"memory.max_rows={config.max_rows} has no room for the {rows} rows of the longest trial: raise it, or leave it out."
            )
        return replace(config, max_rows=config.max_rows or rows)

    def initial_state(self, batch_size: int) -> State:
        """Empty caches."""
        shape, device = (batch_size, self.max_rows, self._width), self.norm.weight.device
        caches = {
            f"{kind}_{i}": torch.zeros(shape, device=device)
            for i in range(len(self.layers))
            for kind in ("keys", "values")
        }
        return {"rows": torch.zeros(batch_size, dtype=torch.int64, device=device), **caches}

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Acts on one row with the cache as it is, and learns from sequences with a cache in front of them
        where the state has one.
        """
        u = dense(x, self.enter.weight, self.enter.bias)
        u, state = self._step(u[0], state, reset[0]) if len(x) == 1 else self._unroll(u, state, reset)
        return layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias), state

    def _step(self, u: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        if reset.any():
            state = {
                name: leaf.masked_fill_(reset.reshape(-1, *[1] * (leaf.dim() - 1)), 0)
                for name, leaf in state.items()
            }
        rows = state["rows"]
        # A slot that is idle after its trial still acts, and nobody reads it: then the newest row takes the
        # place of the oldest.
        place = (torch.arange(len(u), device=u.device), rows % self.max_rows)
        seen = min(int(rows.max()) + 1, self.max_rows)
        visible = (torch.arange(seen, device=u.device) <= rows[:, None])[:, None, None]
        turn = self._turn(rows)
        for i, layer in enumerate(self._each_layer()):
            query, key, value = layer.project(u, turn)
            keys, values = state[f"keys_{i}"], state[f"values_{i}"]
            keys[place], values[place] = key, value
            attended = layer.attend(query[:, None], keys[:, :seen], values[:, :seen], visible)
            u = layer.after(u, attended[:, 0])
        return u[None], {**state, "rows": rows + 1}

    def _unroll(self, u: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        sequences = _Sequences(reset, state["rows"])
        if sequences.longest > self.max_rows:
            raise ValueError(
                f"A trial has more than memory.max_rows={self.max_rows} rows: raise it to k (H + 1), the rows of the longest trial."
            )
        turn = self._turn(sequences.position)
        after: State = {"rows": sequences.position[-1] + 1}
        for i, layer in enumerate(self._each_layer()):
            query, key, value = layer.project(u, turn)
            keys = sequences.gather(key, state[f"keys_{i}"])
            values = sequences.gather(value, state[f"values_{i}"])
            u = layer.after(u, sequences.scatter(layer.attend(sequences.gather(query), keys, values)))
            for kind, packed in (("keys", keys), ("values", values)):
                after[f"{kind}_{i}"] = sequences.cache(packed, self.max_rows)
        return u, after

    def _each_layer(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    def _turn(self, position: Tensor) -> Tensor:
        """[..., 1, head_size / 2] e^(i angle)."""
        angle = position[..., None, None] * self.get_buffer("turns")
        return torch.polar(torch.ones_like(angle), angle)


class _Sequences:
    """Where the rows of [T, B] stand in sequences [S, L], each the rows of one column from one reset to the
    next; empty places are at their ends.
    """

    def __init__(self, reset: Tensor, before: Tensor) -> None:
        (rows, columns), device = reset.shape, reset.device
        self._shape = (rows, columns)
        time = torch.arange(rows, device=device)[:, None]
        since = time - torch.where(reset, time, 0).cummax(0).values
        part = reset.cumsum(0)
        self._before = before.masked_fill(reset[0], 0)
        """Rows of a cache that the first sequence of each column goes on from."""
        self.position = since + self._before * (part == 0)
        self.longest = int(self.position.max()) + 1
        number = (part - part[0]) * columns + torch.arange(columns, device=device)
        _, sequence = torch.unique(number, return_inverse=True)
        self._count = int(sequence.max()) + 1
        self._cached = bool(self._before.any())
        self._aligned = self._count == columns and not self._cached
        self._first, self._last = sequence[0], sequence[-1]
        self._index = (sequence * self.longest + self.position).flatten()

    def gather(self, rows: Tensor, cache: Tensor | None = None) -> Tensor:
        """[T, B, C] -> [S, L, C], behind the cache's rows if there are any."""
        if self._aligned:
            return rows.transpose(0, 1)
        packed = rows.new_zeros(self._count, self.longest, rows.shape[-1])
        if cache is not None and self._cached:
            known = torch.arange(self.longest, device=rows.device) < self._before[:, None]
            room = cache[:, : self.longest]
            packed = packed.index_copy(0, self._first, torch.where(known[..., None], room, 0))
        return packed.flatten(0, 1).index_copy(0, self._index, rows.flatten(0, 1)).view(packed.shape)

    def scatter(self, packed: Tensor) -> Tensor:
        """[S, L, C] -> [T, B, C]."""
        if self._aligned:
            return packed.transpose(0, 1)
        return packed.flatten(0, 1).index_select(0, self._index).view(*self._shape, -1)

    def cache(self, packed: Tensor, room: int) -> Tensor:
        """[S, L, C] -> [B, room, C] the rows of the sequence that each column is in, and zeros."""
        last = packed if self._aligned else packed.index_select(0, self._last)
        full = last.new_zeros(len(last), room, last.shape[-1])
        full[:, : self.longest] = last
        return full


class _Layer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.num_heads * config.head_size
        self._heads = (config.num_heads, config.head_size)
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, 3 * inner, bias=False)
        self.write = nn.Linear(inner, width)
        self.norm_after = nn.LayerNorm(width)
        self.up = nn.Linear(width, config.feed_forward * width)
        self.down = nn.Linear(config.feed_forward * width, width)
        for layer in (self.read, self.write, self.up, self.down):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            for layer in (
                self.write,
                self.down,
            ):  # so that the sum over layers begins no larger than one of them
                layer.weight /= (2 * config.num_layers) ** 0.5

    def project(self, u: Tensor, turn: Tensor) -> list[Tensor]:
        """[..., H] -> query, key, value [..., C], the first two turned by their positions."""
        normed = layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias)
        if u.dim() == 2:
            query, key, value = linear(normed, self.read.weight).chunk(3, -1)
        else:  # three products: the gradient of one, cut in three, would have to be put together again
            query, key, value = (dense(normed, weight) for weight in self.read.weight.chunk(3))
        return [self._rotated(query, turn), self._rotated(key, turn), value]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
        """[S, L, C] each; without `visible` [S, 1, 1, L] row i sees rows 0..i."""
        heads = [rows.unflatten(-1, self._heads).transpose(1, 2) for rows in (query, keys, values)]
        return (
            scaled_dot_product_attention(*heads, attn_mask=visible, is_causal=visible is None)
            .transpose(1, 2)
            .flatten(2)
        )

    def after(self, u: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and what was attended to."""
        u = u + dense(attended, self.write.weight, self.write.bias)
        normed = layer_norm(u, self.norm_after.normalized_shape, self.norm_after.weight, self.norm_after.bias)
        return u + dense(dense(normed, self.up.weight, self.up.bias).relu(), self.down.weight, self.down.bias)

    def _rotated(self, rows: Tensor, turn: Tensor) -> Tensor:
        pairs = torch.view_as_complex(rows.unflatten(-1, self._heads).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-3)

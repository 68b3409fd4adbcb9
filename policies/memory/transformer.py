"""Transformer: causal self-attention over all rows since the reset, with a cache of keys and values to act.

    u'  = u  + O attention(Q n, K n, V n),  n = norm(u)
    u'' = u' + D relu(U norm(u'))

The norm stands before each part (Xiong et al., 2020), so that the layers learn without a warm-up. q . k of
rows i and j depends on i - j alone, because both are rotated by their position since the reset (rotary; Su et
al., 2021).

Acting: every slot has its own position and writes its key and value into its own row of the cache, in place;
a reset empties that slot's cache and no other. Learning: rows are put into sequences, one per column and
reset, so what was before a reset is not masked but absent.
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

# Rows to a radian of the slowest pair of channels, as published.
_SLOWEST_TURN = 10_000.0


@dataclass
class TransformerConfig(MemoryConfig):
    """Options of the transformer."""

    num_layers: int = option(2, "layers of attention, each with its feed-forward part", low=1)
    num_heads: int = option(2, "heads of attention in each layer", low=1)
    head_size: int = option(64, "width of a head, even", low=2)
    feed_forward: int = option(2, "width of the feed-forward part, in multiples of hidden_size", low=1)
    max_rows: int | None = option(
        None, "rows of the cache; null: those of the longest trial, k (H + 1)", low=1
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
        # Angles per row of the pairs of channels of a head, from 1 radian down to 1 / 10,000.
        turns = _SLOWEST_TURN ** -(torch.arange(0, config.head_size, 2) / config.head_size)
        self.register_buffer("turns", turns, persistent=False)

    @classmethod
    def problems(cls, config: TransformerConfig) -> Iterator[str]:
        """Positions need pairs of channels."""
        if config.head_size % 2:
            yield (
                f"memory.head_size={config.head_size} is odd, and positions turn pairs of channels: "
                "make it even."
            )

    @classmethod
    def fitted(cls, config: TransformerConfig, rows: int) -> TransformerConfig:
        """The cache holds a whole trial."""
        if config.max_rows is not None and config.max_rows < rows:
            raise ValueError(
                f"memory.max_rows={config.max_rows} has no room for the {rows} rows of the longest trial: "
                "raise it, or leave it out."
            )
        return replace(config, max_rows=config.max_rows or rows)

    def initial_state(self, batch_size: int) -> State:
        """Empty caches, [B, max_rows, C] for each layer, and the number of rows in them, [B]."""
        device = self.norm.weight.device
        state = {"rows": torch.zeros(batch_size, dtype=torch.int64, device=device)}
        for i in range(len(self.layers)):
            for kind in ("keys", "values"):
                state[f"{kind}_{i}"] = torch.zeros(batch_size, self.max_rows, self._width, device=device)
        return state

    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Act on one row with the cache, or learn from sequences, behind a cache where the state has one."""
        u = dense(x, self.enter.weight, self.enter.bias)
        if len(x) == 1:
            u, state = self._step(u[0], state, reset[0])
        else:
            u, state = self._unroll(u, state, reset)
        # The residual stream is normalised once more, as its sum grows with every layer.
        return layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias), state

    def _step(self, u: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Acting: u [B, H], one row of every slot."""
        # A reset empties the slot's cache, in place, and its position is 0 again.
        if reset.any():
            for leaf in state.values():
                leaf.masked_fill_(reset.reshape(-1, *[1] * (leaf.dim() - 1)), 0)
        rows = state["rows"]
        # Where each slot writes. A slot that is idle after its trial still acts, and its output is not used:
        # there the newest row takes the place of the oldest.
        place = (torch.arange(len(u), device=u.device), rows % self.max_rows)
        # Slots are at different positions: each sees its own rows, in the part of the cache that is in use.
        used = min(int(rows.max()) + 1, self.max_rows)
        visible = (torch.arange(used, device=u.device) <= rows[:, None])[:, None, None]
        turn = self._turn(rows)
        for i, layer in enumerate(self._each_layer()):
            query, key, value = layer.project(u, turn)
            # The present row sees itself, so its key and value go into the cache first.
            keys, values = state[f"keys_{i}"], state[f"values_{i}"]
            keys[place], values[place] = key, value
            attended = layer.attend(query[:, None], keys[:, :used], values[:, :used], visible)
            u = layer.after(u, attended[:, 0])
        return u[None], {**state, "rows": rows + 1}

    def _unroll(self, u: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Learning: u [T, B, H], all rows, in sequences that begin at resets."""
        sequences = _Sequences(reset, state["rows"])
        if sequences.longest > self.max_rows:
            raise ValueError(
                f"A trial has more than memory.max_rows={self.max_rows} rows: "
                "raise it to k (H + 1), the rows of the longest trial."
            )
        turn = self._turn(sequences.position)
        after: State = {"rows": sequences.position[-1] + 1}
        for i, layer in enumerate(self._each_layer()):
            query, key, value = layer.project(u, turn)
            # Rows attend within their sequence, [S, L, C], and come back to [T, B, C].
            keys = sequences.gather(key, state[f"keys_{i}"])
            values = sequences.gather(value, state[f"values_{i}"])
            attended = layer.attend(sequences.gather(query), keys, values)
            u = layer.after(u, sequences.scatter(attended))
            # The cache from which rows after these go on.
            after[f"keys_{i}"] = sequences.cache(keys, self.max_rows)
            after[f"values_{i}"] = sequences.cache(values, self.max_rows)
        return u, after

    def _each_layer(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    def _turn(self, position: Tensor) -> Tensor:
        """[..., 1, head_size / 2] e^(i angle), by which a position turns each pair of channels."""
        angle = position[..., None, None] * self.get_buffer("turns")
        return torch.polar(torch.ones_like(angle), angle)


class _Sequences:
    """The places of the rows [T, B] in sequences [S, L], the rows of one column from one reset to the next.

    Empty places are at the ends of sequences, where causal attention does not look.
    """

    def __init__(self, reset: Tensor, before: Tensor) -> None:
        (rows, columns), device = reset.shape, reset.device
        self._shape = (rows, columns)
        time = torch.arange(rows, device=device)[:, None]
        # Rows since the latest reset: a running maximum, as rows are numbered upwards.
        since = time - torch.where(reset, time, 0).cummax(0).values
        part = reset.cumsum(0)
        # The first sequence of a column goes on behind the rows of its cache, unless row 0 resets.
        self._before = before.masked_fill(reset[0], 0)
        # [T, B] the position of each row since its reset.
        self.position = since + self._before * (part == 0)
        self.longest = int(self.position.max()) + 1
        # Number the pairs (part, column) that exist without gaps: these are the sequences.
        number = (part - part[0]) * columns + torch.arange(columns, device=device)
        _, sequence = torch.unique(number, return_inverse=True)
        self._count = int(sequence.max()) + 1
        self._first, self._last = sequence[0], sequence[-1]
        self._index = (sequence * self.longest + self.position).flatten()
        # Whole trials side by side are sequences as they are, and only need transposing.
        self._cached = bool(self._before.any())
        self._aligned = self._count == columns and not self._cached

    def gather(self, rows: Tensor, cache: Tensor | None = None) -> Tensor:
        """[T, B, C] -> [S, L, C], behind the cache's rows if there are any."""
        if self._aligned:
            return rows.transpose(0, 1)
        packed = rows.new_zeros(self._count, self.longest, rows.shape[-1])
        # The known rows of the caches go to the beginnings of the columns' first sequences ...
        if cache is not None and self._cached:
            known = torch.arange(self.longest, device=rows.device) < self._before[:, None]
            room = cache[:, : self.longest]
            packed = packed.index_copy(0, self._first, torch.where(known[..., None], room, 0))
        # ... and the new rows to their places.
        return packed.flatten(0, 1).index_copy(0, self._index, rows.flatten(0, 1)).view(packed.shape)

    def scatter(self, packed: Tensor) -> Tensor:
        """[S, L, C] -> [T, B, C], the inverse of `gather`."""
        if self._aligned:
            return packed.transpose(0, 1)
        return packed.flatten(0, 1).index_select(0, self._index).view(*self._shape, -1)

    def cache(self, packed: Tensor, room: int) -> Tensor:
        """[S, L, C] -> [B, room, C] the rows of the sequence that each column ends in, and zeros."""
        last = packed if self._aligned else packed.index_select(0, self._last)
        full = last.new_zeros(len(last), room, last.shape[-1])
        full[:, : self.longest] = last
        return full


class _Layer(nn.Module):
    """One layer: attention, and then the feed-forward part."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.num_heads * config.head_size
        self._heads = (config.num_heads, config.head_size)
        self.norm = nn.LayerNorm(width)
        # Q, K and V, one below the other.
        self.read = nn.Linear(width, 3 * inner, bias=False)
        self.write = nn.Linear(inner, width)
        self.norm_after = nn.LayerNorm(width)
        self.up = nn.Linear(width, config.feed_forward * width)
        self.down = nn.Linear(config.feed_forward * width, width)
        for layer in (self.read, self.write, self.up, self.down):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        # The sum over layers starts no larger than one of them (as in GPT-2; each layer adds two parts).
        with torch.no_grad():
            for layer in (self.write, self.down):
                layer.weight /= (2 * config.num_layers) ** 0.5

    def project(self, u: Tensor, turn: Tensor) -> list[Tensor]:
        """[..., H] -> query, key, value [..., C], the first two turned by their positions."""
        normed = layer_norm(u, self.norm.normalized_shape, self.norm.weight, self.norm.bias)
        if u.dim() == 2:
            # Acting: one product.
            query, key, value = linear(normed, self.read.weight).chunk(3, -1)
        else:
            # Learning: three, as the gradient of one, cut in three, would have to be put together again.
            query, key, value = (dense(normed, weight) for weight in self.read.weight.chunk(3))
        return [self._rotated(query, turn), self._rotated(key, turn), value]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None) -> Tensor:
        """[S, L, C] each; without `visible` [S, 1, 1, L] row i sees rows 0..i."""
        # Torch wants the heads in front of the rows: [S, heads, L, head_size].
        heads = [rows.unflatten(-1, self._heads).transpose(1, 2) for rows in (query, keys, values)]
        attended = scaled_dot_product_attention(*heads, attn_mask=visible, is_causal=visible is None)
        return attended.transpose(1, 2).flatten(2)

    def after(self, u: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and the result of the attention."""
        # u' = u + O attention
        u = u + dense(attended, self.write.weight, self.write.bias)
        # u'' = u' + D relu(U norm(u'))
        normed = layer_norm(u, self.norm_after.normalized_shape, self.norm_after.weight, self.norm_after.bias)
        inner = dense(normed, self.up.weight, self.up.bias).relu()
        return u + dense(inner, self.down.weight, self.down.bias)

    def _rotated(self, rows: Tensor, turn: Tensor) -> Tensor:
        """Turn each pair of channels by its angle, as the product of complex numbers."""
        pairs = torch.view_as_complex(rows.unflatten(-1, self._heads).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-3)

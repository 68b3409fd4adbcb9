"""The contract of a memory: it acts (T = 1) and learns (T > 1) through one `forward` over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from utils.options import option

# Everything a memory carries from row to row; every leaf is batch-first, [B, ...].
State = dict[str, Tensor]


@dataclass
class MemoryConfig:
    """Options that every memory has; a memory adds its own in a subclass (`name` is its registry name)."""

    name: str = option("???", "the memory's name in the registry")
    hidden_size: int = option(128, "width of the memory", low=1)


class Memory(nn.Module, ABC):
    """Built as `cls(config, in_dim)`; no row sees another column or a later row.

    docs/memories.md explains the contract with an example; tests/policies/memory checks it over the registry.
    """

    Config: ClassVar[type[MemoryConfig]] = MemoryConfig
    # Whether a window may start from a stored state (a transformer reads whole trials instead).
    stores_state: ClassVar[bool]
    # Whether it reads many rows in few calls of torch, so that two threads take about half the time.
    in_long_calls: ClassVar[bool] = True
    out_dim: int

    @classmethod
    def problems(cls, config: Any) -> Iterator[str]:
        """One sentence for each combination of its options that cannot work."""
        yield from ()

    @classmethod
    def fitted(cls, config: Any, rows: int) -> Any:
        """These options for trials of at most so many rows, where an option depends on that number.

        Raises a `ValueError` of one sentence where the given options have no room for such trials.
        """
        return config

    @abstractmethod
    def __init__(self, config: Any, in_dim: int) -> None:
        super().__init__()
        for problem in self.problems(config):
            raise ValueError(problem)

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """The state before the first row of a trial: all zeros, on the module's device."""

    @abstractmethod
    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """x [T, B, in_dim], reset [T, B] bool -> (out [T, B, out_dim], state after the last row).

        `reset[t]` forgets before reading `x[t]`, and no gradient crosses it. The state passed in is consumed:
        do not use it again. But where `stores_state`, nothing is written into it: actor, critic and target
        networks may all start from the same one.
        """


def check_state(memory: Memory, in_dim: int) -> None:
    """Refuse a memory whose state is not batch-first, at first or after a row.

    torch's own recurrent layers put the layer in front. Such a memory would train without an error, and
    exchange the states of its slots.
    """
    # A layer in front may be as long as one batch, but not as two of them.
    first = {n: memory.initial_state(n) for n in (3, 2)}
    if not isinstance(first[3], dict):
        kind = type(first[3]).__name__
        raise ValueError(f"{type(memory).__name__}: initial_state gives a {kind}, not a dict of tensors.")
    for n, other in ((3, 2), (2, 3)):
        _check_leaves(memory, f"initial_state({n})", {n: first[n], other: first[other]})

    # The same after a row, where a state has the leaves that it had at first.
    names = set(first[3])
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a dropout must not move the streams of a run
        device = next((leaf.device for leaf in first[3].values()), None)
        later: dict[int, State] = {}
        for n, state in first.items():
            x, reset = torch.zeros(1, n, in_dim, device=device), torch.ones(1, n, device=device).bool()
            later[n] = memory(x, state, reset)[1]
    for name in sorted(names ^ set(later[3])):
        raise ValueError(
            f"{type(memory).__name__}: the state has {name!r} at first or after a row, and not at both times."
        )
    for n, other in ((3, 2), (2, 3)):
        where = f"after a row of {n} columns, state"
        _check_leaves(memory, where, {n: later[n], other: later[other]})


def _check_leaves(memory: Memory, where: str, states: dict[int, State]) -> None:
    """Every leaf of the first state, of n columns, must be [n, ...], and otherwise as in the other one."""
    (n, state), (other, state_of_other) = states.items()
    for name, leaf in state.items():
        rest = list(state_of_other[name].shape)
        if other in rest:
            rest.remove(other)
        if list(leaf.shape) != [n, *rest]:
            raise ValueError(
                f"{type(memory).__name__}: {where}[{name!r}] has the shape {list(leaf.shape)}, "
                f"not {[n, *rest]}: put the batch first."
            )

"""The contract of a memory: a recurrence over rows that acts (T = 1) and learns (T > 1) through one
`forward`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from utils.options import option

State = dict[str, Tensor]
"""Everything a memory carries from row to row; every leaf is batch-first, [B, ...]."""


@dataclass
class MemoryConfig:
    """Options that every memory has; a memory adds its own in a subclass (`name` is the registry name)."""

    name: str = option("???", "the memory's name in the registry")
    hidden_size: int = option(128, "width of the memory", low=1)


class Memory(nn.Module, ABC):
    """Built as `cls(config, in_dim)`. Rows of one column never see another column, and row t never sees row
    t+1.
    """

    Config: ClassVar[type[MemoryConfig]] = MemoryConfig
    stores_state: ClassVar[bool]
    """May a window start from a stored state? (A transformer: no, it reads whole trials.)"""
    in_long_calls: ClassVar[bool] = True
    """Does it read many rows in few calls of torch? Then two threads take half the time; not where each row
    is a call.
    """
    out_dim: int

    @classmethod
    def problems(cls, config: Any) -> Iterator[str]:
        """One sentence for each thing that cannot stand together in its options."""
        yield from ()

    @classmethod
    def fitted(cls, config: Any, rows: int) -> Any:
        """These options for trials of at most so many rows, where one of them depends on that; a `ValueError`
        of one sentence if they cannot be.
        """
        return config

    @abstractmethod
    def __init__(self, config: Any, in_dim: int) -> None:
        super().__init__()
        for problem in self.problems(config):
            raise ValueError(problem)

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """The state that knows nothing, all zeros, on the module's device."""

    @abstractmethod
    def forward(self, x: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """x [T, B, in_dim], reset [T, B] bool -> (out [T, B, out_dim], state after the last row).

        `reset[t]` forgets before reading `x[t]`, and no gradient crosses it. The state passed in is consumed:
        do not use it again. But where `stores_state`, nothing is written into it: actor, critic and targets
        may all start from the same one.
        """

"""The contract of a memory: it acts (T = 1) and learns (T > 1) through one `forward` over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

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


def check_state(memory: Memory) -> None:
    """Refuse a memory whose state is not batch-first; torch's own layers put the layer in front.

    Such a memory would train without an error, and exchange the states of its slots.
    """
    for name, leaf in memory.initial_state(3).items():
        if leaf.dim() == 0 or len(leaf) != 3:
            raise ValueError(
                f"{type(memory).__name__}.initial_state(3)[{name!r}] has the shape {list(leaf.shape)}: "
                "put the batch first, [3, ...]."
            )

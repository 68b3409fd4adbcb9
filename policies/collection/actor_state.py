"""What actors remember and say of rows, on its way from a wave to a replay: the states from which windows
start, and extras.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from policies.memory.base import Memory, MemoryConfig, State

if TYPE_CHECKING:
    from envs.parallel_env_manager import ParallelEnvManager, SlotGroup
    from policies.collection.wave import Act, Actor


class StateKeeper(Protocol):
    """Who keeps what actors remember."""

    state_every: int
    """Before one in so many rows of a trial; not before the first, when nothing is remembered."""

    def write_states(
        self, trials: NDArray[np.int64], times: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is what was remembered before row times[i] of the wave's trial trials[i]."""
        ...


@dataclass(frozen=True)
class Remembering:
    """Who acts for a group of slots, and what it remembers of them now, batch-first; and what it added to the
    rows that it acted on last.
    """

    act: Act
    state: Callable[[], State]
    extras: Callable[[], Mapping[str, NDArray[Any]]] = dict

    def __call__(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Actions for the present rows."""
        return self.act(noise)


@dataclass(frozen=True)
class ReadAlong:
    """Acts as `acts` does, while the memory of `reads` reads the rows: so a random pool has the states that
    the agent would have had in it.
    """

    acts: Actor
    reads: Actor

    def for_group(self, manager: ParallelEnvManager, group: SlotGroup) -> Act:
        """Both, for this group."""
        acts, reads = self.acts.for_group(manager, group), self.reads.for_group(manager, group)
        ignored = self.reads.draw_noise(np.random.default_rng(0), group.size)

        def act(noise: NDArray[Any]) -> NDArray[Any]:
            reads(ignored)
            return acts(noise)

        return Remembering(act, reads.state) if isinstance(reads, Remembering) else act

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[Any]:
        """As whoever acts."""
        return self.acts.draw_noise(rng, num_rows)


def keep(
    keeper: StateKeeper, act: Act, slots: NDArray[np.int64], trial: NDArray[np.int64], time: NDArray[np.int64]
) -> None:
    """Before `act` acts for these slots: those of its states that are kept; `trial` and `time` [N] say which
    row is in each slot.
    """
    if not isinstance(act, Remembering):
        raise ValueError(
            "States are to be stored of an actor that has none: let an agent's memory read along (ReadAlong)."
        )
    chosen = slots[(time[slots] % keeper.state_every == 0) & (time[slots] > 0)]
    if len(chosen):
        state = {
            name: leaf[torch.from_numpy(chosen).to(leaf.device)].cpu().numpy()
            for name, leaf in act.state().items()
        }
        keeper.write_states(trial[chosen], time[chosen], state)


def leaves_of(memory: type[Memory], config: MemoryConfig) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, type) of what such a memory remembers of one slot."""
    with torch.random.fork_rng(devices=[]):
        state = memory(config, 1).initial_state(1)
    return {name: (tuple(leaf.shape[1:]), leaf.cpu().numpy().dtype) for name, leaf in state.items()}

"""Batch: time-major rows as the policy saw them, with the actions taken; Needs: what algorithms ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import Enum

import torch
from torch import Tensor

from envs.base import map_obs

Obs = Tensor | dict[str, Tensor]


@dataclass
class Batch:
    """[T, B] rows in the order of time; scalars per row are [T, B], never [T, B, 1].

    A whole trial, a window and a single transition are the same thing at different lengths: a window carries
    the (up to two) rows that its targets look ahead to, which do not train. Rows beyond the end of a trial
    are not `valid`, and hold zeros.
    """

    obs: Obs
    # The consequence of `action[t-1]`; 0 on a start row.
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    episode_start: Tensor
    trial_start: Tensor
    trial_end: Tensor
    valid: Tensor
    # The action that led to this row; 0 on the start row of an episode.
    prev_action: Tensor
    # The action chosen from this row; it is ignored where the episode has ended.
    action: Tensor
    # The rows that losses are taken over: valid, not ended, and within the window.
    trains: Tensor
    # The acting state before row 0, batch-first, where the buffer stores it; None: the initial state.
    state: dict[str, Tensor] | None = None
    # The state before row 0 of a critic with a memory of its own, where an algorithm knows it.
    critic_state: dict[str, Tensor] | None = None
    # What act() or an algorithm added to each row (log-probabilities, values), [T, B, ...].
    extras: dict[str, Tensor] = field(default_factory=dict)

    @property
    def ended(self) -> Tensor:
        """[T, B] the last row of an episode."""
        return self.terminated | self.truncated

    @property
    def shape(self) -> tuple[int, int]:
        """(T, B)."""
        return self.reward.shape[0], self.reward.shape[1]

    def to(self, device: str | torch.device) -> Batch:
        """The same rows on another device."""
        return self._each(lambda values: values.to(device))

    def columns(self, index: Tensor) -> Batch:
        """These columns only, without the rows at the end that none of them has."""
        # Rows are time-major and states are batch-first, so they are selected apart.
        last = int(self.valid[:, index].any(1).nonzero().max()) + 1
        rows = replace(self, state=None, critic_state=None)._each(
            lambda values: values[:last].index_select(1, index)
        )
        state, critic_state = (
            state and {name: leaf.index_select(0, index) for name, leaf in state.items()}
            for state in (self.state, self.critic_state)
        )
        return replace(rows, state=state, critic_state=critic_state)

    def rows(self, start: int, stop: int) -> Batch:
        """These rows only, without the states before them."""
        return replace(self, state=None, critic_state=None)._each(lambda values: values[start:stop])

    def side_by_side(self, window: int) -> Batch:
        """[window, n B] the same rows, every column cut into n windows; all first windows come first."""

        def cut(values: Tensor) -> Tensor:
            # Zeros fill the last window of a column; they are not valid, as `valid` is filled with False.
            missing = -len(values) % window
            padded = torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
            return padded.unflatten(0, (-1, window)).transpose(0, 1).flatten(1, 2)

        return replace(self, state=None, critic_state=None)._each(cut)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        # States and extras are dicts of tensors, as an observation may be.
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        changed = {name: map_obs(change, value) for name, value in values.items() if value is not None}
        return Batch(**changed)  # pyright: ignore[reportArgumentType]


class Sample(Enum):
    """The kind of a column of a batch."""

    trials = "trials"
    windows = "windows"
    transitions = "transitions"


@dataclass(frozen=True)
class Needs:
    """What an algorithm asks of the collector and the buffer."""

    on_policy: bool
    sample: Sample
    # Columns of a batch; 0 takes all that there are.
    batch_size: int
    # Training rows of a window.
    window: int = 0
    # Rows before them that a memory reads first, and that do not train; fewer where the trial has fewer.
    burn_in: int = 0
    # Windows and their burn-in start where the acting state was stored, before one in so many rows.
    #
    # With 0 they start from the initial state.
    state_every: int = 0
    # What act() must record with each row, of `Agent.EXTRAS`; batches then have it in `extras`.
    extras: tuple[str, ...] = ()

"""Replay: trials as rows in preallocated storage, each observation once, and the batches drawn from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from buffers.base import Batch, Needs, Sample
from buffers.memory_states import Leaves, MemoryStates
from buffers.stored_rows import RowFlags, StoredRows, bytes_per_row, columns_of
from buffers.windows import draw_windows, packed_rows, trial_rows, window_rows
from envs.base import ActionSpace, ObsSpace, Rows


def _bytes_needed(
    *,
    obs_space: ObsSpace,
    action_space: ActionSpace,
    capacity_trials: int,
    rows_per_trial: int,
    extras: Sequence[str] = (),
    states: Leaves | None = None,
    state_every: int = 0,
) -> int:
    """Memory of a replay of these sizes when it is full."""
    per_row = bytes_per_row(columns_of(obs_space, action_space, extras).values())
    rows = capacity_trials * (rows_per_trial * per_row + 16)  # 16 for the two counts of each trial
    if not state_every:
        return rows
    return rows + MemoryStates.bytes_needed(
        states or {}, every=state_every, capacity_trials=capacity_trials, rows_per_trial=rows_per_trial
    )


class Replay:
    """A ring of whole trials: trial number j, counted when it is committed, has place j % capacity.

    A wave reserves places, writes its rows in any order, and commits. Row t of the trial at place p is row
    p * rows_per_trial + t of storage.
    """

    bytes_needed = staticmethod(_bytes_needed)

    def __init__(
        self,
        *,
        obs_space: ObsSpace,
        action_space: ActionSpace,
        capacity_trials: int,
        rows_per_trial: int,
        extras: Sequence[str] = (),
        states: Leaves | None = None,
        state_every: int = 0,
        device: str = "cpu",
        device_copied: bool = False,
    ) -> None:
        self.capacity = capacity_trials
        self.rows_per_trial = rows_per_trial
        # Trials ever committed.
        self.num_added = 0
        self._device = device
        self._rows = StoredRows(
            columns_of(obs_space, action_space, extras),
            capacity_trials * rows_per_trial,
            device=device,
            copied=device_copied,
        )
        # The acting state is stored before one in so many rows; 0: it is not stored.
        self.state_every = state_every
        self._states: MemoryStates | None = None
        if state_every:
            self._states = MemoryStates(
                states or {},
                every=state_every,
                capacity_trials=capacity_trials,
                rows_per_trial=rows_per_trial,
            )
        # [capacity] rows of the trial at each place; 0 where there is none to sample.
        self._lengths = np.zeros(capacity_trials, np.int64)
        # [capacity] env steps of the trial at each place.
        self._transitions = np.zeros(capacity_trials, np.int64)
        # Places of the wave that is being written.
        self._reserved: NDArray[np.int64] | None = None
        self._refresh()

    @property
    def oldest(self) -> int:
        """The number of the oldest trial that is stored."""
        return max(0, self.num_added - self.capacity)

    @property
    def num_trials(self) -> int:
        """Trials that can be sampled."""
        return len(self._alive)

    @property
    def num_transitions(self) -> int:
        """Env steps that can be sampled."""
        return int(self._transitions.sum())

    # -- a wave comes in -------------------------------------------------------------------------------------

    def reserve(self, n: int) -> None:
        """Give the next n places to a wave of at most n trials, in the order of their numbers.

        The trials that were there are gone.
        """
        if n > self.capacity:
            raise ValueError(
                f"A wave of {n} trials does not fit into a replay with room for {self.capacity}: "
                "collect fewer at once, or make room."
            )
        # From now on none of the old trials is sampled, as their rows may be overwritten at any time; but a
        # place that the wave does not use gets its length back (`commit`, `discard`).
        self._reserved = (self.num_added + np.arange(n)) % self.capacity
        self._before = self._lengths[self._reserved]
        self._lengths[self._reserved] = 0
        self._transitions[self._reserved] = 0
        self._refresh()

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Rows,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> None:
        """Row times[i] of the wave's trial trials[i] is the row of slot slots[i].

        With it come the action that was chosen from it, and extras; an extra that is not given is 0.
        """
        assert self._reserved is not None, "reserve() comes first"
        at = self._reserved[trials] * self.rows_per_trial + times
        self._rows.write(at, rows, slots, actions, extras)

    def write_states(
        self, trials: NDArray[np.int64], times: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is the actor's memory state before row times[i] of the wave's trial trials[i].

        `state_every` divides times[i].
        """
        assert self._reserved is not None, "reserve() comes first"
        assert self._states is not None, "states are stored if they are asked for"
        self._states.write(self._reserved[trials], times, state)

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """The wave is complete: its trials, of that many rows, can be sampled.

        Reserved places that were not used keep their old trials.
        """
        assert self._reserved is not None, "reserve() comes first"
        # Places are used in order, so the unused ones are the last.
        unused = self._before[len(lengths) :]
        self._set_lengths(self._reserved, np.concatenate([lengths, unused]).astype(np.int64))
        self.num_added += len(lengths)
        self._reserved = None

    def discard(self, started: int) -> None:
        """Forget an interrupted wave: the places of its started trials are empty until the next wave.

        The other places keep their old trials.
        """
        assert self._reserved is not None, "reserve() comes first"
        self._set_lengths(self._reserved[started:], self._before[started:])
        self._reserved = None

    # -- batches go out --------------------------------------------------------------------------------------

    def sample(self, needs: Needs, rng: np.random.Generator) -> Batch:
        """Draw trials uniformly, or windows or transitions such that all training rows are equally likely.

        With stored states, windows start only at multiples of `state_every`; so overlapping windows share
        more rows.
        """
        if not self.num_trials:
            raise RuntimeError("The replay is empty.")
        if needs.sample is Sample.trials:
            # A whole trial is a window of all its rows.
            place = self._alive[rng.integers(len(self._alive), size=needs.batch_size)]
            start, window = np.zeros_like(place), self.rows_per_trial
        else:
            window = 1 if needs.sample is Sample.transitions else needs.window
            place, start = draw_windows(
                rng,
                needs.batch_size,
                window,
                every=needs.state_every or 1,
                alive=self._alive,
                lengths=self._lengths,
                ended=self._ended,
            )

        # A window that begins before its trial has no row there; burn-in reaches back to the trial's start.
        reads_before = needs.state_every > 0 or needs.sample is Sample.windows
        begin = np.maximum(start - needs.burn_in * reads_before, 0)
        rows = window_rows(
            place, start, window, begin=begin, lengths=self._lengths, rows_per_trial=self.rows_per_trial
        )
        batch = self._rows.batch(rows)
        if not needs.state_every or self._states is None:
            return batch
        # The state before the first row that is read, with which the memory starts.
        state = self._states.before(place, begin)
        return replace(
            batch, state={name: torch.from_numpy(leaf).to(self._device) for name, leaf in state.items()}
        )

    def whole(self, first: int, stop: int, *, packed: bool = True) -> Batch:
        """[T, B] all rows of the trials number first..stop-1, each once.

        T is the length of the longest trial; shorter ones share columns, one after another, unless each is to
        have one of its own in the order of their numbers (`packed=False`).
        """
        place = np.arange(first, stop) % self.capacity
        # Trials that were given up have no rows.
        place = place[self._lengths[place] > 0]
        if not len(place):
            raise RuntimeError("There are no such trials.")
        rows = packed_rows(place, self._lengths[place], self.rows_per_trial, packed=packed)
        return self._rows.batch(rows)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def export(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        """Trials number first..stop-1: the rows that exist, one after another, with their lengths."""
        if not self.oldest <= first <= stop <= self.num_added:
            raise ValueError(
                f"Trials {first}..{stop} are not all here; there are {self.oldest}..{self.num_added}."
            )
        # Rows beyond the end of a trial were never written; they are left out.
        place = np.arange(first, stop) % self.capacity
        lengths = self._lengths[place]
        at = trial_rows(place, lengths, self.rows_per_trial)
        segment = {"first": np.array([first]), "lengths": lengths}
        segment |= {name: values[at] for name, values in self._rows.columns.items()}
        if self._states is not None:
            segment |= self._states.export(place, lengths)
        return segment

    def restore(self, segments: Iterable[Mapping[str, NDArray[Any]]], num_added: int = 0) -> None:
        """Put exported segments back, oldest first, after `num_added` trials; sampling is then as it was."""
        self.num_added = num_added
        for segment in segments:
            first, lengths = int(segment["first"][0]), segment["lengths"]
            # Of a segment that is larger than the ring, the newest trials are put back.
            skip = max(0, len(lengths) - self.capacity)
            skipped_rows = int(lengths[:skip].sum())
            place = np.arange(first + skip, first + len(lengths)) % self.capacity
            at = trial_rows(place, lengths[skip:], self.rows_per_trial)
            for name, values in self._rows.columns.items():
                values[at] = segment[name][skipped_rows:]
            if self._states is not None:
                self._states.restore(segment, place, lengths[skip:])
            self._set_lengths(place, lengths[skip:])
            self.num_added = max(num_added, first + len(lengths))

    # -- inside ----------------------------------------------------------------------------------------------

    def _set_lengths(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """The trials at these places are complete, with so many rows: from now on they are sampled."""
        if len(lengths) != len(place) or lengths.max(initial=0) > self.rows_per_trial:
            raise ValueError(
                f"{len(place)} trials of at most {self.rows_per_trial} rows were expected, "
                f"not the lengths {lengths.tolist()}."
            )
        self._lengths[place] = lengths
        # A copy on a device is brought up to date once per wave, not with each row.
        self._rows.changed(trial_rows(place, lengths, self.rows_per_trial))
        # An env step leaves every row but those that ended an episode.
        time = np.arange(self.rows_per_trial)
        ended = self._ended(place[:, None], time)
        self._transitions[place] = ((time < lengths[:, None]) & ~ended).sum(1)
        self._refresh()

    def _refresh(self) -> None:
        """Note the places that hold a trial to sample."""
        self._alive = np.flatnonzero(self._lengths)

    def _ended(self, place: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether these rows ended an episode."""
        return self._rows.columns["flags"][place * self.rows_per_trial + time] & RowFlags.ENDED > 0

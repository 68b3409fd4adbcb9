"""Replay: trials as rows in preallocated storage, each observation once, and the batches drawn from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from buffers.base import Batch, Needs, Sample
from buffers.memory_states import Leaves
from buffers.stored_rows import columns_of
from buffers.trial_storage import Segment, TrialStorage
from buffers.windows import draw_windows, packed_rows, trial_rows, window_rows
from envs.base import ActionSpace, ObsSpace, Rows


def _bytes_needed(
    *,
    obs_space: ObsSpace,
    action_space: ActionSpace,
    capacity_rows: int,
    wave_trials: int,
    rows_per_trial: int,
    extras: Sequence[str] = (),
    states: Leaves | None = None,
    state_every: int = 0,
) -> int:
    """Memory of a replay of these sizes when it is full."""
    columns = columns_of(obs_space, action_space, extras)
    return sum(
        TrialStorage.bytes_needed(columns, num_rows, states=states, state_every=state_every)
        for num_rows in (capacity_rows, wave_trials * rows_per_trial)
    )


class Replay:
    """A ring of rows: whole trials, one after another, in the order of their numbers.

    A wave is written in any order, into a storage of its own: row t of its i-th trial is row
    i * rows_per_trial + t there. When it is committed its trials go into the ring, and the oldest trials go
    as far as their rows are needed.
    """

    bytes_needed = staticmethod(_bytes_needed)

    def __init__(
        self,
        *,
        obs_space: ObsSpace,
        action_space: ActionSpace,
        capacity_rows: int,
        wave_trials: int,
        rows_per_trial: int,
        extras: Sequence[str] = (),
        states: Leaves | None = None,
        state_every: int = 0,
        device: str = "cpu",
        device_copied: bool = False,
    ) -> None:
        self.rows_per_trial = rows_per_trial
        # Trials ever committed.
        self.num_added = 0
        self._device = device
        # The acting state is stored before one in so many rows; 0: it is not stored.
        self.state_every = state_every
        self._new_storage = partial(
            TrialStorage, columns_of(obs_space, action_space, extras), states=states, state_every=state_every
        )
        # Of a wave whose trials are short, only a part of this memory is ever touched.
        self._wave = self._new_storage(wave_trials * rows_per_trial, device=device)
        # Without a ring the trials stay where the wave has written them.
        self._stored = self._wave
        if capacity_rows:
            self._stored = self._new_storage(capacity_rows, device=device, copied=device_copied)
        # The trials of the wave that is being written, at most; None: there is none.
        self._reserved: int | None = None
        self._forget()

    @property
    def capacity(self) -> int:
        """Rows that can be stored."""
        return self._stored.num_rows

    @property
    def oldest(self) -> int:
        """The number of the oldest trial that is stored."""
        return self.num_added - len(self._lengths)

    @property
    def num_trials(self) -> int:
        """Trials that can be sampled."""
        return int((self._lengths > 0).sum())

    @property
    def num_rows(self) -> int:
        """Rows that are stored."""
        return int(self._lengths.sum())

    @property
    def num_transitions(self) -> int:
        """Env steps that can be sampled."""
        # An env step leaves every row but those that ended an episode.
        at = trial_rows(self._first, self._lengths, self.capacity)
        return int((~self._stored.ended(at)).sum())

    # -- a wave comes in -------------------------------------------------------------------------------------

    def reserve(self, n: int) -> None:
        """A wave of at most n trials begins; what is stored can be sampled until it is committed."""
        if n * self.rows_per_trial > self.capacity:
            raise ValueError(
                f"A wave of {n} trials of up to {self.rows_per_trial} rows does not fit into a replay with "
                f"room for {self.capacity} rows: collect fewer at once, or make room."
            )
        if n * self.rows_per_trial > self._wave.num_rows:
            self._wave = self._new_storage(n * self.rows_per_trial, device=self._device)
        self._reserved = n

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
        self._wave.rows.write(trials * self.rows_per_trial + times, rows, slots, actions, extras)

    def write_states(
        self, trials: NDArray[np.int64], times: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is the actor's memory state before row times[i] of the wave's trial trials[i].

        `state_every` divides times[i].
        """
        assert self._reserved is not None, "reserve() comes first"
        assert self._wave.states is not None, "states are stored if they are asked for"
        self._wave.states.write(trials * self.rows_per_trial + times, state)

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """The wave is complete: its trials, of that many rows, can be sampled."""
        assert self._reserved is not None, "reserve() comes first"
        if len(lengths) > self._reserved or lengths.max(initial=0) > self.rows_per_trial:
            raise ValueError(
                f"At most {self._reserved} trials of at most {self.rows_per_trial} rows were expected, "
                f"not the lengths {lengths.tolist()}."
            )
        self._keep(np.arange(len(lengths)) * self.rows_per_trial, lengths.astype(np.int64))
        self._reserved = None

    def discard(self) -> None:
        """Forget an interrupted wave."""
        self._reserved = None

    # -- batches go out --------------------------------------------------------------------------------------

    def sample(self, needs: Needs, rng: np.random.Generator) -> Batch:
        """Draw trials uniformly, or windows or transitions such that all training rows are equally likely.

        With stored states, windows start only at multiples of `state_every`; so overlapping windows share
        more rows.
        """
        # Trials that were given up have no rows.
        alive = np.flatnonzero(self._lengths)
        if not len(alive):
            raise RuntimeError("The replay is empty.")
        if needs.sample is Sample.trials:
            # A whole trial is a window of all its rows.
            trial = alive[rng.integers(len(alive), size=needs.batch_size)]
            start, window = np.zeros_like(trial), self.rows_per_trial
        else:
            window = 1 if needs.sample is Sample.transitions else needs.window
            trial, start = draw_windows(
                rng,
                needs.batch_size,
                window,
                every=needs.state_every or 1,
                alive=alive,
                lengths=self._lengths,
                ended=self._ended,
            )

        # A window that begins before its trial has no row there; burn-in reaches back to the trial's start.
        reads_before = needs.state_every > 0 or needs.sample is Sample.windows
        begin = np.maximum(start - needs.burn_in * reads_before, 0)
        first, lengths = self._first[trial], self._lengths[trial]
        rows = window_rows(first, lengths, start, window, begin=begin, ring=self.capacity)
        batch = self._stored.rows.batch(rows)
        if not needs.state_every or self._stored.states is None:
            return batch
        # The state before the first row that is read, with which the memory starts.
        state = self._stored.states.before(rows.at[0], begin)
        return replace(
            batch, state={name: torch.from_numpy(leaf).to(self._device) for name, leaf in state.items()}
        )

    def whole(self, first: int, stop: int, *, packed: bool = True) -> Batch:
        """[T, B] all rows of the trials number first..stop-1, each once.

        T is the length of the longest trial; shorter ones share columns, one after another, unless each is to
        have one of its own in the order of their numbers (`packed=False`).
        """
        found = slice(first - self.oldest, stop - self.oldest)
        begins, lengths = self._first[found], self._lengths[found]
        if not lengths.any():
            raise RuntimeError("There are no such trials.")
        # Trials that were given up have no rows.
        rows = packed_rows(begins[lengths > 0], lengths[lengths > 0], self.capacity, packed=packed)
        return self._stored.rows.batch(rows)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def export(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        """Trials number first..stop-1: the rows that exist, one after another, with their lengths."""
        if not self.oldest <= first <= stop <= self.num_added:
            raise ValueError(
                f"Trials {first}..{stop} are not all here; there are {self.oldest}..{self.num_added}."
            )
        found = slice(first - self.oldest, stop - self.oldest)
        return {"first": np.array([first])} | self._stored.read(self._first[found], self._lengths[found])

    def restore(self, segments: Iterable[Segment], num_added: int = 0) -> None:
        """Hold exported segments, oldest first, and nothing else; sampling is then as it was.

        Trials between them that are lost, and those up to `num_added`, count as given up.
        """
        self._forget()
        self.num_added = 0
        for segment in segments:
            self._skip_to(int(segment["first"][0]))
            self.extend(segment)
        self._skip_to(num_added)

    def extend(self, segment: Segment) -> None:
        """Store the next trials, as they were exported; the oldest ones go as far as rows are needed."""
        lengths = segment["lengths"].astype(np.int64)
        if lengths.max(initial=0) > self.rows_per_trial:
            raise ValueError(
                f"Trials of at most {self.rows_per_trial} rows were expected, "
                f"not the lengths {lengths.tolist()}."
            )
        # 1. They follow the newest trial. Of more than there is room for, the last ones come in.
        self.num_added += len(lengths)
        lengths = lengths[_oldest_that_fits(lengths, self.capacity) :]
        end = self._first[-1] + self._lengths[-1] if len(self._first) else 0
        first = (end + np.cumsum(lengths) - lengths) % self.capacity

        # 2. The oldest trials go, and the rows of the new ones come into their place.
        all_lengths = np.append(self._lengths, lengths)
        kept = slice(_oldest_that_fits(all_lengths, self.capacity), None)
        self._first, self._lengths = np.append(self._first, first)[kept], all_lengths[kept]
        self._stored.put(first, lengths, segment)

    # -- inside ----------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """No trial is stored."""
        # For each trial from the oldest on: its first row, and how many it has; 0 if it was given up.
        self._first, self._lengths = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _keep(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Store the trials of the wave, which begin at these of its rows."""
        self.extend(self._wave.read(first, lengths))

    def _skip_to(self, number: int) -> None:
        """Count the trials up to this number, which are not here, as given up."""
        if len(self._lengths):
            missing = max(0, number - self.num_added)
            self._first = np.append(self._first, np.repeat(self._first[-1] + self._lengths[-1], missing))
            self._lengths = np.append(self._lengths, np.zeros(missing, np.int64))
        self.num_added = max(number, self.num_added)

    def _ended(self, trial: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether these rows of stored trials ended an episode."""
        return self._stored.ended(self._first[trial] + time)


def _oldest_that_fits(lengths: NDArray[np.int64], rows: int) -> int:
    """Of trials of these lengths the first one that has room in so many rows with all that come after it."""
    return int((np.cumsum(lengths[::-1]) > rows).sum())

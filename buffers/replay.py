"""Replay: trials as rows in preallocated storage, each observation once; samples trials, windows or single
transitions, or gives all once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from buffers.base import Batch, Needs, Sample
from buffers.device_copy import DeviceCopy
from buffers.memory_states import Leaves, States
from envs.base import Rows

TERMINATED, TRUNCATED, EPISODE_START, TRIAL_START, TRIAL_END = 1, 2, 4, 8, 16
ENDED = TERMINATED | TRUNCATED
LOOK_AHEAD = 2
"""Rows after a training row that its target may read (policies/returns.py)."""


class Replay:
    """A ring of whole trials; trial number j, counted when committed, has place j % capacity.

    A wave reserves places, writes its rows in any order, and commits. Memory is touched only as it is first
    written.
    """

    def __init__(
        self,
        *,
        obs_space: spaces.Box | spaces.Dict,
        action_space: spaces.Space[Any],
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
        self.num_added = 0
        """Trials ever committed."""
        self._device = device
        self._extras = tuple(extras)
        columns = _columns(obs_space, action_space, extras)
        self._rows = {
            name: np.zeros((capacity_trials * rows_per_trial, *shape), dtype)
            for name, (shape, dtype) in columns.items()
        }
        self._mirror = DeviceCopy(self._rows, device, starts=EPISODE_START) if device_copied else None
        self.state_every = state_every
        """Before one in so many rows the acting state is kept; 0: it is not."""
        self._states = None
        if state_every:
            self._states = States(
                states or {},
                every=state_every,
                capacity_trials=capacity_trials,
                rows_per_trial=rows_per_trial,
            )
        self._lengths = np.zeros(capacity_trials, np.int64)
        """[capacity] rows of the trial at each place; 0 where there is none to sample."""
        self._transitions = np.zeros(capacity_trials, np.int64)
        self._reserved: NDArray[np.int64] | None = None
        self._refresh()

    @staticmethod
    def bytes_needed(
        *,
        obs_space: spaces.Box | spaces.Dict,
        action_space: spaces.Space[Any],
        capacity_trials: int,
        rows_per_trial: int,
        extras: Sequence[str] = (),
        states: Leaves | None = None,
        state_every: int = 0,
    ) -> int:
        """Memory of a full replay."""
        per_row = sum(
            int(np.prod(shape)) * dtype.itemsize
            for shape, dtype in _columns(obs_space, action_space, extras).values()
        )
        rows = capacity_trials * (rows_per_trial * per_row + 16)
        if not state_every:
            return rows
        return rows + States.bytes_needed(
            states or {}, every=state_every, capacity_trials=capacity_trials, rows_per_trial=rows_per_trial
        )

    @property
    def oldest(self) -> int:
        """The number of the oldest trial that is kept."""
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
        """The next n places belong to the coming wave of at most so many trials, in the order of their
        numbers; what was there is gone.
        """
        if n > self.capacity:
            raise ValueError(
                f"A wave of {n} trials does not fit into a replay with room for {self.capacity}: collect fewer at once, or make room."
            )
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
        """Row times[i] of the wave's trial trials[i] is slot slots[i], with the action chosen from it, and
        extras: 0 where nobody says them.
        """
        assert self._reserved is not None, "reserve() comes first"
        at = self._reserved[trials] * self.rows_per_trial + times
        stored = self._rows
        if isinstance(rows.obs, dict):
            for key, part in rows.obs.items():
                stored[f"obs.{key}"][at] = part[slots]
        else:
            stored["obs"][at] = rows.obs[slots]
        stored["action"][at] = actions[slots]
        stored["reward"][at] = rows.reward[slots]
        stored["flags"][at] = _pack(rows)[slots]
        for name in self._extras:
            stored[f"extra.{name}"][at] = extras[name][slots] if name in extras else 0.0

    def write_states(
        self, trials: NDArray[np.int64], times: NDArray[np.int64], state: Mapping[str, NDArray[Any]]
    ) -> None:
        """state[...][i] is what the actor remembered before row times[i] of the wave's trial trials[i];
        `state_every` divides times[i].
        """
        assert self._reserved is not None and self._states is not None, (
            "reserve() comes first, and states are kept if asked for"
        )
        self._states.write(self._reserved[trials], times, state)

    def commit(self, lengths: NDArray[np.int64]) -> None:
        """The wave is complete: its trials, of that many rows, can be sampled. What is left of its places is
        as it was.
        """
        assert self._reserved is not None, "reserve() comes first"
        self._settle(self._reserved, np.concatenate([lengths, self._before[len(lengths) :]]).astype(np.int64))
        self.num_added += len(lengths)
        self._reserved = None

    def discard(self, started: int) -> None:
        """Forget an interrupted wave: the places of the trials that had been started are empty until the
        next, and the others are as they were.
        """
        assert self._reserved is not None, "reserve() comes first"
        self._settle(self._reserved[started:], self._before[started:])
        self._reserved = None

    # -- batches go out --------------------------------------------------------------------------------------

    def sample(self, needs: Needs, rng: np.random.Generator) -> Batch:
        """Trials uniformly; windows and transitions so that every row that trains is equally likely to be in
        one.

        Windows that start from a stored state begin at rows before which it is kept, so the same rows stand
        in them together more often.
        """
        if not self.num_trials:
            raise RuntimeError("The replay is empty.")
        if needs.sample is Sample.trials:
            place = self._alive[rng.integers(len(self._alive), size=needs.batch_size)]
            start, window = np.zeros_like(place), self.rows_per_trial
        else:
            window = 1 if needs.sample is Sample.transitions else needs.window
            place, start = self._draw_windows(needs.batch_size, window, rng, needs.state_every or 1)
        if needs.state_every:
            return self._gather(place, start, window, needs.burn_in, self._states)
        return self._gather(place, start, window, needs.burn_in if needs.sample is Sample.windows else 0)

    def whole(self, first: int, stop: int) -> Batch:
        """[T, B] trials number first..stop-1, each once: T rows as the longest has, in as many columns as
        they fill one after another.
        """
        place = np.arange(first, stop) % self.capacity
        place = place[self._lengths[place] > 0]
        if not len(place):
            raise RuntimeError("There are no such trials.")
        lengths = self._lengths[place]
        column, start = packed(lengths)
        at, valid = (
            np.zeros((lengths.max(), column.max() + 1), np.int64),
            np.zeros((lengths.max(), column.max() + 1), np.bool_),
        )
        time = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        cells = np.repeat(start, lengths) + time, np.repeat(column, lengths)
        at[cells], valid[cells] = np.repeat(place * self.rows_per_trial, lengths) + time, True
        return self._batch(at, valid, np.True_)

    def _draw_windows(
        self, batch_size: int, window: int, rng: np.random.Generator, every: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw (place, first row) by rejection. Windows begin up to window-1 rows before the trial, or its
        first rows would be in too few.

        All begin at multiples of `every`, which divides `window`: so each row is in window / every of them.
        """
        place, start = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
        todo = np.arange(batch_size)
        latest = self._lengths.max() - 1
        while len(todo):
            place[todo] = self._alive[rng.integers(len(self._alive), size=len(todo))]
            start[todo] = every * rng.integers(1 - window // every, (latest - 1) // every + 1, size=len(todo))
            beyond = start[todo] >= self._lengths[place[todo]] - 1
            idle = (self._flags(place[todo], start[todo]) & ENDED > 0) if window == 1 else False
            todo = todo[beyond | idle]
        return place, start

    def _gather(
        self,
        place: NDArray[np.int64],
        start: NDArray[np.int64],
        window: int,
        burn_in: int = 0,
        states: States | None = None,
    ) -> Batch:
        """Rows [start, start + window) of the trial at each place, with those that are read before them and
        those that they look ahead to.
        """
        first_training, last_training = start, start + window
        start = np.maximum(start - burn_in, 0)
        stop = np.minimum(last_training + LOOK_AHEAD, self._lengths[place])
        time = start + np.arange((stop - start).max())[:, None]
        valid = time < stop
        batch = self._batch(
            place * self.rows_per_trial + np.minimum(time, stop - 1),
            valid,
            (first_training <= time) & (time < last_training),
        )
        if states is None:
            return batch
        return replace(
            batch,
            state={
                name: torch.from_numpy(values).to(self._device)
                for name, values in states.before(place, start).items()
            },
        )

    def _batch(
        self, at: NDArray[np.int64], valid: NDArray[np.bool_], within: NDArray[np.bool_] | np.bool_
    ) -> Batch:
        """The rows of storage numbered `at` [T, B], zeros where they are not `valid`; those that train are
        `within`.
        """
        if self._mirror is not None:
            return _assemble(
                *self._mirror.take(at, valid),
                *(torch.as_tensor(mask).to(self._device) for mask in (valid, within)),
            )
        columns = {name: np.take(values, at, axis=0) for name, values in self._rows.items()}
        if not valid.all():
            for values in columns.values():
                values[~valid] = 0
        before = np.take(self._rows["action"], np.maximum(at[:1] - 1, 0), axis=0)
        prev_action = np.concatenate([before, columns["action"][:-1]])
        prev_action[(columns["flags"] & EPISODE_START > 0) | ~valid] = 0
        return _assemble(columns, prev_action, valid, within).to(self._device)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def export(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        """Trials number first..stop-1: the rows that exist, one after another, with their lengths."""
        if not self.oldest <= first <= stop <= self.num_added:
            raise ValueError(
                f"Trials {first}..{stop} are not all here; there are {self.oldest}..{self.num_added}."
            )
        place = np.arange(first, stop) % self.capacity
        lengths = self._lengths[place]
        at = self._rows_of(place, lengths)
        states = {} if self._states is None else self._states.export(place, lengths)
        return {
            "first": np.array([first]),
            "lengths": lengths,
            **{name: values[at] for name, values in self._rows.items()},
            **states,
        }

    def restore(self, segments: Iterable[Mapping[str, NDArray[Any]]], num_added: int = 0) -> None:
        """Put exported segments back, oldest first, after so many trials; sampling afterwards is what it was,
        bit for bit.
        """
        self.num_added = num_added
        for segment in segments:
            first, lengths = int(segment["first"][0]), segment["lengths"]
            keep = max(0, len(lengths) - self.capacity)
            skipped = int(lengths[:keep].sum())
            place = np.arange(first + keep, first + len(lengths)) % self.capacity
            at = self._rows_of(place, lengths[keep:])
            for name, values in self._rows.items():
                values[at] = segment[name][skipped:]
            if self._states is not None:
                self._states.restore(segment, place, lengths[keep:])
            self._settle(place, lengths[keep:])
            self.num_added = max(num_added, first + len(lengths))

    # -- inside ----------------------------------------------------------------------------------------------

    def _settle(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        if len(lengths) != len(place) or lengths.max(initial=0) > self.rows_per_trial:
            raise ValueError(
                f"{len(place)} trials of at most {self.rows_per_trial} rows were expected, not the lengths {lengths.tolist()}."
            )
        self._lengths[place] = lengths
        if self._mirror is not None:
            self._mirror.follow(self._rows, self._rows_of(place, lengths))
        time = np.arange(self.rows_per_trial)
        flags = self._flags(place[:, None], time)
        self._transitions[place] = ((time < lengths[:, None]) & (flags & ENDED == 0)).sum(1)
        self._refresh()

    def _refresh(self) -> None:
        self._alive = np.flatnonzero(self._lengths)

    def _flags(self, place: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self._rows["flags"][place * self.rows_per_trial + time]

    def _rows_of(self, place: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        begins = np.cumsum(lengths) - lengths
        return np.repeat(place * self.rows_per_trial - begins, lengths) + np.arange(lengths.sum())


def _assemble(columns: dict[str, Any], prev_action: Any, valid: Any, within: Any) -> Batch:
    """A batch of [T, B] columns, arrays or tensors alike, with zeros where they are not `valid`; those
    `within` may train.
    """
    flags, of = columns.pop("flags"), torch.as_tensor
    parts, extras = (
        {name[len(kind) :]: of(values) for name, values in columns.items() if name.startswith(kind)}
        for kind in ("obs.", "extra.")
    )
    return Batch(
        obs=parts or of(columns["obs"]),
        reward=of(columns["reward"]),
        terminated=of(flags & TERMINATED > 0),
        truncated=of(flags & TRUNCATED > 0),
        episode_start=of(flags & EPISODE_START > 0),
        trial_start=of(flags & TRIAL_START > 0),
        trial_end=of(flags & TRIAL_END > 0),
        valid=of(valid),
        prev_action=of(prev_action),
        action=of(columns["action"]),
        trains=of(valid & (flags & ENDED == 0) & within),
        extras=extras,
    )


def packed(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(column, first row) of trials of these lengths: the longest first, each in the first column with room
    for it, as high as the longest.
    """
    column, start, filled = np.empty_like(lengths), np.empty_like(lengths), np.zeros_like(lengths)
    for trial in np.argsort(-lengths, kind="stable"):
        column[trial] = first = int(np.argmax(filled + lengths[trial] <= lengths.max()))
        start[trial] = filled[first]
        filled[first] += lengths[trial]
    return column, start


def _pack(rows: Rows) -> NDArray[np.uint8]:
    """[N] the flags of a row in one byte."""
    flags = rows.trial_end.view(np.uint8)
    for flag in (rows.trial_start, rows.episode_start, rows.truncated, rows.terminated):
        flags = flags * np.uint8(2) + flag.view(np.uint8)
    return flags


def _columns(
    obs_space: spaces.Box | spaces.Dict, action_space: spaces.Space[Any], extras: Sequence[str]
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, type) of all that is stored of a row."""

    def part(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        assert space.shape is not None and space.dtype is not None, f"{space} has no shape"
        return space.shape, np.dtype(space.dtype)

    obs = (
        {f"obs.{key}": part(space) for key, space in obs_space.spaces.items()}
        if isinstance(obs_space, spaces.Dict)
        else {"obs": part(obs_space)}
    )
    said = {f"extra.{name}": ((), np.dtype(np.float32)) for name in extras}
    return {
        **obs,
        "action": part(action_space),
        "reward": ((), np.dtype(np.float32)),
        "flags": ((), np.dtype(np.uint8)),
        **said,
    }

"""Trials: k episodes of one task, and the clock that marks where they begin and end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.base import Rows, Slots
from utils.seeding import episode_seeds


class TrialClock:
    """Counts steps and episodes of every slot, ends episodes at the horizon, and marks this in the rows.

    It is the only place that knows what comes after the end of an episode: the next episode of the same task,
    or nothing. `slots` are those of the manager, as a slice or as an array of indices.
    """

    def __init__(self, rows: Rows, *, episodes_per_trial: int, max_episode_steps: int) -> None:
        if episodes_per_trial < 1 or max_episode_steps < 1:
            raise ValueError(
                "A trial needs at least one episode of one step, "
                f"not {episodes_per_trial} of {max_episode_steps}."
            )
        # A trial is named by its seed: the seeds of its episodes, and so its data, follow from it.
        num_slots = len(rows.reward)
        self._rows = rows
        self.episodes_per_trial = episodes_per_trial
        self.max_episode_steps = max_episode_steps
        self.trial_seed = np.zeros(num_slots, np.uint64)
        # [N] env steps after which an episode is cut: those of a trial's task may be fewer than of others.
        self.horizon = np.full(num_slots, max_episode_steps)
        # [N] the episode that the row belongs to, from 0.
        self.episode = np.zeros(num_slots, np.int64)
        # [N] env steps taken in that episode.
        self.time = np.zeros(num_slots, np.int64)
        # [N] slots whose trial has begun and goes on after this row.
        self.running = np.zeros(num_slots, np.bool_)
        # Whether any trial has ever begun.
        self.has_begun = False

    def begin(
        self,
        slots: NDArray[np.int64],
        seeds: NDArray[np.uint64],
        horizons: NDArray[np.int64] | None = None,
    ) -> None:
        """A new trial is about to start in these slots; `horizons` is H of each, where their tasks differ."""
        self.has_begun = True
        self.horizon[slots] = self.max_episode_steps if horizons is None else horizons
        self.trial_seed[slots] = seeds
        self.episode[slots] = -1  # `started` makes it 0 when the first row has come
        self.time[slots] = 0
        self.running[slots] = True

    def forget(self, slots: Slots) -> None:
        """The trials of these slots are over without an end."""
        self.running[slots] = self._rows.valid[slots] = False

    def next_episode_seeds(self, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The seeds of the episodes that are about to start in these slots."""
        # Keyed by trial and episode: which slot plays it, and what was played before, makes no difference.
        return episode_seeds(self.trial_seed[slots], self.episode[slots] + 1)

    def started(self, slots: Slots) -> None:
        """The start rows of episodes have come: only here `episode_start` and `trial_start` are True."""
        rows = self._rows
        self.episode[slots] += 1
        self.time[slots] = 0
        rows.valid[slots] = rows.episode_start[slots] = True
        rows.trial_start[slots] = self.episode[slots] == 0
        rows.trial_end[slots] = False

    def stepped(self, slots: Slots) -> None:
        """The rows after a step have come: mark the ends at the horizon, and the end of the trial."""
        rows = self._rows
        self.time[slots] += 1
        # Both flags at once would be ambiguous: an episode that ended by itself was not cut off.
        rows.truncated[slots] |= (self.time[slots] >= self.horizon[slots]) & ~rows.terminated[slots]
        rows.valid[slots] = True
        rows.episode_start[slots] = rows.trial_start[slots] = False
        # A fall ends the episode, not the trial: that ends with its k-th episode only.
        last = rows.terminated[slots] | rows.truncated[slots]
        last &= self.episode[slots] == self.episodes_per_trial - 1
        rows.trial_end[slots] = last
        self.running[slots] = ~last

"""PlayedRows: the rows of slots that a loop outside steps, marked as the trial's clock marks them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.base import Obs, paired_arrays
from envs.layout import Layout

Flags = NDArray[np.bool_]


class PlayError(ValueError):
    """What a loop gave cannot be what the agent was trained on; the text is one sentence."""


class PlayedRows:
    """N slots, each in a trial of k episodes; a loop says of every row what it is.

    Nothing here knows the environment, so every row is checked against what may follow the row before: a loop
    that leaves out the last observation of an episode, or shows the first of the next in its place, is
    refused before the agent reads on.
    """

    def __init__(self, layout: Layout, num_slots: int, *, episodes: int, horizon: int) -> None:
        self.layout, self.episodes, self.horizon = layout, episodes, horizon
        self.rows = layout.allocate(num_slots)
        # The family's own part of the observations: views of the rows.
        self._own_obs = layout.part(self.rows, 0, num_slots).obs
        # [N] the episode of its trial that the row belongs to, from 0; and env steps taken in that episode.
        self.episode = np.zeros(num_slots, np.int64)
        self.time = np.zeros(num_slots, np.int64)
        # [N] the number of the row in its trial.
        self.row = np.zeros(num_slots, np.int64)
        # [N] the next row starts an episode, or even a trial; and slots in which no row has come since reset.
        self._start_due = np.ones(num_slots, np.bool_)
        self._trial_due = np.ones(num_slots, np.bool_)
        self._blank = np.ones(num_slots, np.bool_)

    def reset(self, slots: NDArray[np.int64]) -> None:
        """The next rows of these slots start trials, wherever they are now."""
        self._start_due[slots] = self._trial_due[slots] = self._blank[slots] = True

    @property
    def all_start(self) -> bool:
        """Whether the next row of every slot starts an episode."""
        return bool(self._start_due.all())

    def idle(self, obs: Obs, reward: NDArray[np.float64], done: Flags) -> Flags:
        """[N] slots that show the end of their trial once more, as a manager does until the next start."""
        waits = done & self._trial_due & ~self._blank & (reward == self.rows.reward)
        for stored, given in paired_arrays(self._own_obs, obs):
            waits &= (stored == given).reshape(len(waits), -1).all(1)
        return waits

    def arrive(
        self,
        slots: NDArray[np.int64],
        obs: Obs,
        reward: NDArray[np.float64],
        done: Flags,
        *,
        flag: Flags | None,
        chosen: NDArray[np.generic],
    ) -> NDArray[np.int64]:
        """The next rows of these slots; the slots among them in which a trial starts.

        All arrays are those of all slots. `flag` is the new-episode flag where the observation came with one,
        and `chosen` are the actions that led to these rows.
        """
        # 1. What the row before makes of these rows. An environment that plays whole trials tells the ends of
        #    its inner episodes by the flag of the next one alone.
        starts, trial_starts = self._start_due[slots], self._trial_due[slots]
        if flag is not None and self.layout.with_flag:
            self._check_flags(slots, flag[slots])
            starts = starts | flag[slots]
        self._check_starts(slots[starts], reward, done)
        self._check_going_on(slots[~starts])

        # 2. The clock of each slot.
        self.episode[slots] = np.where(trial_starts, 0, self.episode[slots] + starts)
        self.time[slots] = np.where(starts, 0, self.time[slots] + 1)
        self.row[slots] = np.where(trial_starts, 0, self.row[slots] + 1)

        # 3. The rows themselves. On start rows the previous action and the reward are 0.
        rows = self.rows
        for stored, given in paired_arrays(self._own_obs, obs):
            stored[slots] = given[slots]
        rows.reward[slots] = reward[slots]
        rows.prev_action[slots] = chosen[slots]
        rows.prev_action[slots[starts]] = 0
        rows.episode_start[slots], rows.trial_start[slots] = starts, trial_starts
        rows.terminated[slots] = done[slots]
        rows.valid[:] = False
        rows.valid[slots] = True
        self.layout.write_extra(rows, slots)

        # 4. What must follow.
        self._start_due[slots] = done[slots]
        self._trial_due[slots] = done[slots] & (self.episode[slots] == self.episodes - 1)
        self._blank[slots] = False
        return slots[trial_starts]

    # -- what cannot be --------------------------------------------------------------------------------------

    def _check_flags(self, slots: NDArray[np.int64], flag: Flags) -> None:
        """The flag in the observation must agree with the count of episodes."""
        last = self.episode[slots] == self.episodes - 1
        begins_more = flag & (self._trial_due[slots] | (last & ~self._start_due[slots]))
        ends_early = ~flag & self._start_due[slots] & ~self._trial_due[slots]
        for wrong, what in (
            (begins_more, "goes on with one more episode"),
            (ends_early, "begins a new trial"),
        ):
            if wrong.any():
                slot = slots[wrong][0]
                raise PlayError(
                    f"Slot {slot}: by its new-episode flag the environment {what} after episode "
                    f"{self.episode[slot] + 1}, and the player's trials have {self.episodes}: make both with "
                    "as many (load_agent(..., episodes=...)), or reset() where a trial is broken off."
                )

    def _check_starts(self, slots: NDArray[np.int64], reward: NDArray[np.float64], done: Flags) -> None:
        """The first row of an episode has no reward, and does not end it."""
        wrong = slots[(reward[slots] != 0) | done[slots]]
        if len(wrong):
            raise PlayError(
                f"Slot {wrong[0]}: the first observation of an episode comes with reward 0 and done=False, "
                f"not {reward[wrong[0]]} and {bool(done[wrong[0]])}: after done=True show the observation of "
                "env.reset() next."
            )

    def _check_going_on(self, slots: NDArray[np.int64]) -> None:
        """An episode has at most as many steps as in training."""
        wrong = slots[self.time[slots] >= self.horizon]
        if len(wrong):
            raise PlayError(
                f"Slot {wrong[0]}: {self.horizon} steps without done=True, the most of an episode: show the "
                "last observation too, by act(obs, reward, True), before env.reset(), or allow longer "
                "episodes by load_agent(..., horizon=...)."
            )

"""Trials: k episodes of one task. The clock that draws their boundaries, and the single-environment face of a
trial.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envs.base import Rows, Slots
from utils.seeding import episode_seeds

if TYPE_CHECKING:
    from envs.parallel_env_manager import ParallelEnvManager


class TrialClock:
    """Counts steps and episodes of every slot, ends episodes at the horizon, and marks the boundaries in the
    rows.

    It is the only place that knows what comes after the end of an episode: the next episode of the same task,
    or nothing. Slots are given as a slice or as an array of indices.
    """

    def __init__(self, rows: Rows, *, episodes_per_trial: int, max_episode_steps: int) -> None:
        if episodes_per_trial < 1 or max_episode_steps < 1:
            raise ValueError(
                f"A trial needs at least one episode of one step, not {episodes_per_trial} of {max_episode_steps}."
            )
        num_slots = len(rows.reward)
        self._rows = rows
        self.episodes_per_trial = episodes_per_trial
        self.max_episode_steps = max_episode_steps
        self.trial_seed = np.zeros(num_slots, np.uint64)
        self.episode = np.zeros(num_slots, np.int64)
        """[N] the episode that the row belongs to, from 0."""
        self.time = np.zeros(num_slots, np.int64)
        """[N] env steps taken in that episode."""
        self.running = np.zeros(num_slots, np.bool_)
        """[N] slots whose trial has begun and goes on after this row."""
        self.has_begun = False
        """Whether any trial has ever begun."""

    def begin(self, slots: NDArray[np.int64], seeds: NDArray[np.uint64]) -> None:
        """A new trial is about to start in these slots."""
        self.has_begun = True
        self.trial_seed[slots] = seeds
        self.episode[slots] = -1
        self.time[slots] = 0
        self.running[slots] = True

    def forget(self, slots: Slots) -> None:
        """The trials of these slots are over without an end."""
        self.running[slots] = False
        self._rows.valid[slots] = False

    def next_episode_seeds(self, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The seeds of the episodes that are about to start in these slots."""
        return episode_seeds(self.trial_seed[slots], self.episode[slots] + 1)

    def started(self, slots: Slots) -> None:
        """The start rows of episodes are there."""
        rows = self._rows
        self.episode[slots] += 1
        self.time[slots] = 0
        rows.valid[slots] = True
        rows.episode_start[slots] = True
        rows.trial_start[slots] = self.episode[slots] == 0
        rows.trial_end[slots] = False

    def stepped(self, slots: Slots) -> None:
        """The rows after a step are there: end at the horizon, mark the end of the trial."""
        rows = self._rows
        self.time[slots] += 1
        rows.truncated[slots] |= (self.time[slots] >= self.max_episode_steps) & ~rows.terminated[slots]
        rows.valid[slots] = True
        rows.episode_start[slots] = False
        rows.trial_start[slots] = False
        last = (rows.terminated[slots] | rows.truncated[slots]) & (
            self.episode[slots] == self.episodes_per_trial - 1
        )
        rows.trial_end[slots] = last
        self.running[slots] = ~last


class Boundary(Enum):
    """What the single environment shows between two episodes of a trial.

    `reset_obs`: the last row of the episode, then (after one ignored action) the start row of the next.
    `legacy`: only the last row, as the published wrappers did, with the new-episode flag raised on it where
    there is one; the start observation is hidden in `info["start_state"]`, and the first action is taken
    without seeing it.
    """

    reset_obs = "reset_obs"
    legacy = "legacy"


class VariBadWrapper(gymnasium.Env[Any, Any]):
    """A trial as one Gymnasium episode: k episodes of one task, so k(H+1)-1 steps (k*H with
    `boundary=legacy`).

    `reset(seed=, options={"task": vector})` starts a trial of that task, or of a task drawn from the family's
    training split. The observation ends with the task when `oracle`, and with the new-episode flag when k >
    1. `info` tells what happens inside: `task`, `episode`, `episode_start`, `terminated`, `truncated` (of the
    inner episode) and the family's own numbers.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        manager: ParallelEnvManager,
        *,
        boundary: Boundary = Boundary.reset_obs,
        render_mode: str | None = None,
    ) -> None:
        if manager.num_envs != 1:
            raise ValueError(f"VariBadWrapper is the face of one slot; this manager has {manager.num_envs}.")
        self._manager = manager
        self._boundary = boundary
        self._running = False
        self.render_mode = render_mode
        self.observation_space = manager.single_observation_space
        self.action_space = manager.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a trial."""
        super().reset(seed=seed)
        unknown = set(options or {}) - {"task"}
        if unknown:
            raise ValueError(f"reset(options=...) knows only 'task', not {sorted(unknown)}.")
        task = (options or {}).get("task")
        tasks = self._manager.sample_tasks(1, rng=self.np_random) if task is None else [task]
        self._manager.reset(tasks, seeds=[int(self.np_random.integers(2**63))])
        self._arrived(trial_end=False)
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the inner episode; after its last row, the start of the next (the action is ignored).

        A trial that is given up after a fault ends with a `TrialDroppedError`; `reset` starts another.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded("The trial is over, or was never started: call reset().")
        rows = self._manager.step(np.asarray(action)[None])
        self._arrived(trial_end=bool(rows.trial_end[0]))
        reward, trial_end = float(rows.reward[0]), bool(rows.trial_end[0])
        terminated, truncated = bool(rows.terminated[0]), bool(rows.truncated[0])
        obs, info = self._obs(), self._info()
        if self._boundary is Boundary.legacy and (terminated or truncated) and not trial_end:
            self._manager.step(np.asarray(action)[None])
            self._arrived(trial_end=False)
            info["start_state"] = self._obs()
            self._manager.layout.raise_flag(obs)
        return obs, reward, terminated and trial_end, truncated and trial_end, info

    def render(self) -> Any:
        """An RGB picture, when made with `render_mode="rgb_array"`."""
        return self._manager.render(0) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the environment."""
        self._manager.close()

    def _arrived(self, *, trial_end: bool) -> None:
        """The row of a trial that goes on unless this is its end; an error if it was given up instead."""
        self._running = not (trial_end or self._manager.dropped[0])
        self._manager.check_kept(0)

    def _obs(self) -> Any:
        obs = self._manager.rows.obs
        return {key: part[0].copy() for key, part in obs.items()} if isinstance(obs, dict) else obs[0].copy()

    def _info(self) -> dict[str, Any]:
        return self._manager.info_of(0)

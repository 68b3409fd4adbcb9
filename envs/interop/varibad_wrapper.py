"""VariBadWrapper: one slot as a Gymnasium environment, of which an episode is a whole trial."""

from __future__ import annotations

from enum import Enum
from typing import Any

import gymnasium
import numpy as np

from envs.base import map_obs
from envs.interop.trial_slots import drawn_start
from envs.parallel_env_manager import ParallelEnvManager


class Boundary(Enum):
    """What the single environment shows between two episodes of a trial.

    `reset_obs`: the last row of the episode, then (after one ignored action) the start row of the next.
    `legacy`: only the last row, as the published wrappers did, with the new-episode flag raised on it where
    there is one. The start observation is hidden in `info["start_state"]`, so the first action of the episode
    is taken without seeing it.
    """

    reset_obs = "reset_obs"
    legacy = "legacy"


class VariBadWrapper(gymnasium.Env[Any, Any]):
    """A trial as one Gymnasium episode: k episodes of one task, so k(H+1)-1 steps (k*H with
    `boundary=legacy`).

    `reset(seed=, options={"task": vector})` starts a trial of that task, or of a task drawn from the family's
    training split. The observation ends with the task when `oracle`, and with the new-episode flag when k >
    1. `info` reports what happens inside: `task`, `episode_index`, `episode_start`, `terminated`, `truncated`
    (of the inner episode) and the family's own numbers.
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
        self._manager, self._boundary, self.render_mode = manager, boundary, render_mode
        self._running = False
        self.observation_space = manager.single_observation_space
        self.action_space = manager.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a trial."""
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"task"}
        if unknown:
            raise ValueError(f"reset(options=...) knows only 'task', not {sorted(unknown)}.")
        start = drawn_start(self._manager, self.np_random, options.get("task"))
        self._manager.reset([start.task], [start.seed])
        self._arrived(trial_end=False)
        return self._obs(), self._manager.info_of(0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the inner episode; after its last row, the start of the next (the action is ignored).

        A trial that is given up after a fault ends with a `TrialDroppedError`; `reset` starts another.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded("The trial is over, or was never started: call reset().")
        rows = self._manager.step(np.asarray(action)[None])
        trial_end = bool(rows.trial_end[0])
        self._arrived(trial_end=trial_end)
        # The rows are live buffers: everything is read before the next step overwrites it.
        reward = float(rows.reward[0])
        terminated, truncated = bool(rows.terminated[0]), bool(rows.truncated[0])
        obs, info = self._obs(), self._manager.info_of(0)
        # The legacy boundary takes the ignored step to the next start row by itself, and hides that row.
        if self._boundary is Boundary.legacy and (terminated or truncated) and not trial_end:
            self._manager.step(np.asarray(action)[None])
            self._arrived(trial_end=False)
            info["start_state"] = self._obs()
            self._manager.layout.raise_flag(obs)
        # To Gymnasium the episode is the whole trial: the ends of inner episodes are in `info` only.
        return obs, reward, terminated and trial_end, truncated and trial_end, info

    def render(self) -> Any:
        """An RGB picture, when made with `render_mode="rgb_array"`."""
        return self._manager.render(0) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the environment."""
        self._manager.close()

    def _arrived(self, *, trial_end: bool) -> None:
        """Note whether the trial goes on after this row; an error if it was given up after a fault."""
        self._running = not (trial_end or self._manager.dropped[0])
        self._manager.check_not_dropped(0)

    def _obs(self) -> Any:
        return map_obs(lambda part: part[0].copy(), self._manager.rows.obs)

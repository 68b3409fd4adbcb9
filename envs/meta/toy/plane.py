"""A point on the plane with position control, and a goal: the shard that the toy families share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Obs, Shard
from envs.meta.kernels import clipped_actions, index_of
from envs.meta.pictures import GOAL, ROBOT, discs

# How far an action of 1 moves the point along an axis.
STEP = 0.1

OBS_SPACE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTION_SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)
INFO_NAMES = ("distance", "success")


class PlaneShard(Shard, ABC):
    """Slots of the dynamics x' = x + 0.1 a + drift.

    A subclass defines where episodes start, what a task is, and the reward. Info: the distance to the goal,
    and whether the point is in the goal now. Nothing here ends an episode.
    """

    def __init__(self, num_slots: int, radius: float) -> None:
        self._num_slots = num_slots
        self._radius = radius
        self._position = np.zeros((num_slots, 2))
        self._goal = np.zeros((num_slots, 2))
        self._drift = np.zeros((num_slots, 2))

    @abstractmethod
    def start(self, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        """[n, 2] where the episodes of these seeds start."""

    @abstractmethod
    def goal_and_drift(
        self, tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The goal and the drift, [n, 2] each, of the episodes of these tasks and seeds."""

    def drift(self, at: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        """[n, 2] what moves the points in this step besides their actions; called once a step."""
        return self._drift[at]

    @abstractmethod
    def reward(self, distance: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[Any]:
        """[n] the reward, from the distance to the goal and whether it is within the radius."""

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the points at their starts."""
        self._goal[slots], self._drift[slots] = self.goal_and_drift(tasks, seeds)
        self._position[slots] = self.start(seeds)
        self._write(slots, self._position[slots])

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move the points."""
        at = index_of(slots, self._num_slots)
        # x' = x + 0.1 a + drift, in place in the array of the clipped actions.
        position = clipped_actions(actions, slots)
        position *= STEP
        position += self._position[at]
        position += self.drift(at)
        self._position[at] = position
        # The reward is that of the position after the step.
        distance, inside = self._write(at, position)
        self.rows.reward[at] = self.reward(distance, inside)
        self.rows.terminated[at] = False
        self.rows.truncated[at] = False

    def _write(
        self, at: NDArray[np.int64] | slice, position: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Write observation and info; returns the distance and whether it is within the radius."""
        offset = position - self._goal[at]
        offset *= offset
        # Not np.hypot or a norm: square roots are correctly rounded, so every machine has these bits.
        distance = np.sqrt(offset[:, 0] + offset[:, 1])
        inside = distance <= self._radius
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[at] = position
        self.rows.info[at, 0] = distance
        self.rows.info[at, 1] = inside
        return distance, inside

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The goal in green, the point in dark blue."""
        goal, point = ((float(x), float(y)) for x, y in (self._goal[slot], self._position[slot]))
        return discs([(goal, max(self._radius, 0.05), GOAL), (point, 0.06, ROBOT)])


def on_circle(angles: NDArray[np.float64], radius: float = 1.0) -> NDArray[np.float64]:
    """[n, 2] the points of a circle at these angles.

    It uses math, because numpy's trigonometry may give other last bits for arrays of other lengths.
    """
    points = [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles.tolist()]
    return np.array(points, np.float64).reshape(len(points), 2)


def towards(
    goal: NDArray[np.float64], obs: Obs, drift: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float32]:
    """[N, 2] the actions that bring the points to their goals in the fewest steps.

    Each axis moves as fast as it can, and then stays.
    """
    assert isinstance(obs, np.ndarray)
    # The drift of the coming step is compensated as well.
    return np.clip((goal - obs[:, :2].astype(np.float64) - drift) / STEP, -1.0, 1.0).astype(np.float32)

"""Walks on a grid: floor plans drawn in text, and the shard that the navigation families share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Shard
from envs.meta.kernels import checked_choices, index_of
from envs.meta.pictures import GROUND, ROBOT, WALL, Colour, tiles

STAY, UP, RIGHT, DOWN, LEFT = range(5)
# What each action adds to (x, y).
MOVES = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])

ACTION_SPACE = spaces.Discrete(len(MOVES))


class FloorPlan:
    """Cells and the moves between them.

    In the drawing `.` is a cell, `|` is a cell with walls on its left and right, and everything else is wall.
    A cell's number counts along the rows of the drawing's box from its lower left corner. `places[number]` is
    its (x, y), where `origin` is that of the lower left corner. `after[number * 5 + action]` is the number of
    the cell after an action: a move into a wall stays where it is.
    """

    def __init__(self, drawing: tuple[str, ...], origin: tuple[int, int] = (0, 0)) -> None:
        # The drawing's last line is the row with the smallest y.
        signs = np.array([list(line) for line in reversed(drawing)])
        self.height, self.width = signs.shape
        self.open = (signs != " ").ravel()
        self.origin = origin
        rows, columns = np.divmod(np.arange(signs.size), self.width)
        self.places = np.stack([columns, rows], axis=1) + np.array(origin, np.float64)
        # The table of moves: one column per action.
        after = np.empty((signs.size, len(MOVES)), np.int64)
        for action, (right, up) in enumerate(MOVES.tolist()):
            x, y = columns + right, rows + up
            inside = (0 <= x) & (x < self.width) & (0 <= y) & (y < self.height)
            number = np.where(inside, y * self.width + x, 0)
            # A wall beside a cell stops a sideways move out of the cell, and into it.
            walled = (right != 0) & ((signs.ravel() == "|") | (signs.ravel()[number] == "|"))
            after[:, action] = np.where(inside & self.open[number] & ~walled, number, np.arange(signs.size))
        self.after = after.ravel()

    def number(self, places: NDArray[np.float64]) -> NDArray[np.int64]:
        """[n] the numbers of the cells at these [n, 2] places."""
        offset = (places - np.array(self.origin)).astype(np.int64)
        return offset[:, 1] * self.width + offset[:, 0]

    @property
    def obs_space(self) -> spaces.Box:
        """The space of (x, y)."""
        low = np.array(self.origin, np.float32)
        size = np.array([self.width - 1, self.height - 1], np.float32)
        return spaces.Box(low, low + size, dtype=np.float32)


class WalkShard(Shard, ABC):
    """Slots of a walk on a floor plan.

    The agent observes its (x, y) and starts every episode at `start`. Nothing ends an episode.
    """

    def __init__(self, num_slots: int, plan: FloorPlan, start: tuple[int, int]) -> None:
        self._num_slots = num_slots
        self._plan = plan
        self._start = int(plan.number(np.array([start], np.float64))[0])
        self._places = plan.places.astype(np.float32)
        self._cell = np.zeros(num_slots, np.int64)

    @abstractmethod
    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        """Store the tasks of these slots and write their info; called when they stand at the start."""

    @abstractmethod
    def score(self, at: NDArray[np.int64] | slice, cell: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n] the reward for having come to these cells; writes the info."""

    @abstractmethod
    def marks(self, slot: int) -> list[tuple[int, Colour]]:
        """The cells that a picture marks, and their colours."""

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the walkers at the start."""
        self._cell[slots] = self._start
        self._obs[slots] = self._places[self._start]
        self.set_tasks(slots, tasks)

    def step(self, slots: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Move the walkers."""
        at = index_of(slots, self._num_slots)
        move = checked_choices(actions, slots, len(MOVES))
        # A walk is a look-up: the table knows the cell after every action in every cell.
        cell = self._plan.after[self._cell[at] * len(MOVES) + move]
        self._cell[at] = cell
        self._obs[at] = self._places[cell]
        self.rows.reward[at] = self.score(at, cell)
        self.rows.terminated[at] = False
        self.rows.truncated[at] = False

    @property
    def _obs(self) -> NDArray[np.float32]:
        assert isinstance(self.rows.obs, np.ndarray)
        return self.rows.obs

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The walker in dark blue on the plan, above the marks."""
        colours = np.where(self._plan.open[:, None], GROUND, WALL).astype(np.uint8)
        for cell, colour in (*self.marks(slot), (int(self._cell[slot]), ROBOT)):
            colours[cell] = colour
        return tiles(colours.reshape(self._plan.height, self._plan.width, 3)[::-1])


def walk_to(cell: NDArray[np.float64], goal: NDArray[np.float64]) -> NDArray[np.int64]:
    """[n] the actions that bring walkers at (x, y) to their goals: along x, then along y, then stay."""
    right, up = (goal[:, axis] - cell[:, axis] for axis in (0, 1))
    upwards = np.where(up > 0, UP, np.where(up < 0, DOWN, STAY))
    return np.where(right > 0, RIGHT, np.where(right < 0, LEFT, upwards))

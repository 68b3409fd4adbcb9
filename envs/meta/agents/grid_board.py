"""The board of GridWorldMultiAgent: its rules, vectorised over boards and independent of who asks for them.

A cell is one number on a board with a margin of two cells, so that no view leaves it: cell = (x + 2) * width
+ (y + 2). Lookups by cell replace arithmetic with coordinates. `nowhere` is no cell of the board: dead agents
are there, and a target that nobody saw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utils.seeding import episode_seeds, uniforms

# An agent sees so many cells to each side: a view of 5 x 5 cells, whose edge is the best place to be.
SIGHT = 2
VIEW = 2 * SIGHT + 1
CLOSE = 1
# What the actions add to (x, y): +x, +y, -x, -y, stay.
MOVES = np.array([(1, 0), (0, 1), (-1, 0), (0, -1), (0, 0)])
STAY = 4
# Obstacles are rectangles with sides of 1 to this many cells.
LONGEST_SIDE = 3
ELSEWHERE = -0.01
# A target of full speed turns in so many of its steps.
TURNS = 0.3

# What an agent sees is, in this order: its place (x, y) as parts of the board's side; three planes of its
# view (outside or obstacle, other agent, target), column by column; and whether it was told where the target
# was, and where. All are numbers from 0 to 1.
PLACE, SHARED = 2, 3
FEATURES = PLACE + 3 * VIEW * VIEW + SHARED

Cells = NDArray[np.int64]
Boards = NDArray[np.int64] | slice


@dataclass(frozen=True)
class GridRules:
    """What the game is, beside its task."""

    size: int = 9
    agents: int = 2
    obstacles: int = 0
    target_speed: float = 0.0
    closeness_cost: float = 0.5
    together: bool = False
    death_on_sight: bool = False


class Board:
    """`num` boards of one game; every method takes the boards it is about."""

    def __init__(self, num: int, rules: GridRules) -> None:
        self.rules = rules
        self.width = width = rules.size + 2 * SIGHT
        self.nowhere = width * width
        # By cell: its coordinates, and whether it is outside of the board. Nowhere is far from everything.
        x, y = np.divmod(np.arange(self.nowhere + 1), width)
        self.x, self.y = x - SIGHT, y - SIGHT
        self.x[-1] = self.y[-1] = 10 * width
        outside = (np.minimum(self.x, self.y) < 0) | (np.maximum(self.x, self.y) >= rules.size)
        self.moves: Cells = MOVES @ np.array([width, 1])
        self.window = (np.arange(-SIGHT, SIGHT + 1)[:, None] * width + np.arange(-SIGHT, SIGHT + 1)).ravel()
        # Boards with obstacles have a plan each, all others share one.
        self._plans = num if rules.obstacles else 1
        self.walls = np.tile(outside, (self._plans, 1))
        self._empty = outside
        self._first = (np.arange(num) if rules.obstacles else np.zeros(num, np.int64)) * (self.nowhere + 1)
        corners = np.array([(0, 0), (1, 1), (0, 1), (1, 0)])[: rules.agents] * (rules.size - 1)
        self.starts = self.cells_of(corners)
        # The state of a game.
        self.agents = np.tile(self.starts, (num, 1))
        self.target, self.shared = np.zeros(num, np.int64), np.full(num, self.nowhere)
        self.time, self._direction = np.zeros(num, np.int64), np.zeros(num, np.int64)
        self._seed = np.zeros(num, np.uint64)

    def cells_of(self, places: NDArray[np.int64]) -> Cells:
        """[...] the cells of (x, y), [..., 2]."""
        return (places[..., 0] + SIGHT) * self.width + places[..., 1] + SIGHT

    def blocked(self, at: Boards, cells: Cells) -> NDArray[np.bool_]:
        """[n, ...] whether these cells [n, ...] are outside or an obstacle."""
        first = self._first[at].reshape(-1, *[1] * (cells.ndim - 1))
        return self.walls.reshape(-1).take(first + cells)

    def distance(self, first: Cells, second: Cells) -> NDArray[np.int64]:
        """Chebyshev distances: the moves of a king."""
        return np.maximum(
            np.abs(self.x.take(first) - self.x.take(second)), np.abs(self.y.take(first) - self.y.take(second))
        )

    def alive(self, at: Boards) -> NDArray[np.bool_]:
        """[n, agents]"""
        return self.agents[at] != self.nowhere

    def sees(self, at: Boards) -> NDArray[np.bool_]:
        """[n, agents] who has the target in view."""
        return self.distance(self.agents[at], self.target[at][:, None]) <= SIGHT

    # -- a game ----------------------------------------------------------------------------------------------

    def reset(
        self,
        at: NDArray[np.int64],
        homes: NDArray[np.int64],
        layouts: NDArray[np.uint64],
        seeds: NDArray[np.uint64],
    ) -> None:
        """Begin a game: agents in their corners, the target at home, obstacles by the layouts' seeds."""
        self.agents[at] = self.starts
        self.target[at] = self.cells_of(homes)
        self.shared[at] = self.nowhere
        self.time[at] = 0
        self._seed[at] = seeds
        self._direction[at] = np.floor(4 * uniforms(seeds, 1)[:, 0])
        if self.rules.obstacles:
            self.walls[at] = self._empty | self._obstacles(layouts)
            # The starts, their neighbours and home are free.
            for move in self.moves:
                self.walls[at[:, None], self.starts + move] = self._empty[self.starts + move]
            self.walls[at, self.target[at]] = False

    def _obstacles(self, layouts: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """[n, cells] rectangles: a corner and two sides each, four draws from the seed of the layout."""
        draws = uniforms(layouts, 4 * self.rules.obstacles).reshape(len(layouts), -1, 4, 1)
        left, low = (np.floor(self.rules.size * draws[:, :, i]) for i in (0, 1))
        width, height = (np.floor(1 + LONGEST_SIDE * draws[:, :, i]) for i in (2, 3))
        inside = (self.x >= left) & (self.x < left + width) & (self.y >= low) & (self.y < low + height)
        return np.asarray(inside.any(1))

    def turn(self, at: Boards, seat: int, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n] the rewards of the agent in this seat, which moves; a dead one does not."""
        alive, now = self.alive(at)[:, seat], self.agents[at]
        wanted = now[:, seat] + self.moves[actions] * alive
        stopped = self.blocked(at, wanted)
        for other in range(self.rules.agents):
            if other != seat:
                stopped |= wanted == now[:, other]
        now[:, seat] = np.where(stopped, now[:, seat], wanted)
        self.agents[at] = now

        # In view is good, and close is bad.
        distance = self.distance(now[:, seat], self.target[at])
        close, seen = distance <= CLOSE, distance <= SIGHT
        if self.rules.together:
            seen &= self.sees(at).sum(1) > 1
        cost = self.rules.closeness_cost
        reward = np.where(close, -cost, np.where(seen, 1.0 - cost, ELSEWHERE)) * alive
        if self.rules.death_on_sight:
            self.agents[at, seat] = np.where(close, self.nowhere, now[:, seat])
        return reward

    def end_cycle(self, at: Boards) -> None:
        """After all turns: everybody is told what anybody has seen, and then the target moves."""
        told = np.where(self.sees(at).any(1), self.target[at], self.nowhere)
        self.shared[at] = told
        self.time[at] += 1
        if self.rules.target_speed > 0:
            self._move_target(at)

    def _move_target(self, at: Boards) -> None:
        """Now and then the target turns, and often it takes a step; it is stopped as the agents are."""
        speed, now, direction = self.rules.target_speed, self.target[at], self._direction[at]
        # Draws of their own for every cycle: whether it turns, whereto, and whether it steps.
        turns, whereto, steps = uniforms(episode_seeds(self._seed[at], self.time[at]), 3).T
        direction = np.where(turns < TURNS * speed, np.floor(4 * whereto).astype(np.int64), direction)
        wanted = now + self.moves[direction]
        stopped = self.blocked(at, wanted) | (wanted[:, None] == self.agents[at]).any(1)
        # One that is stopped turns back.
        self._direction[at] = np.where(stopped, (direction + 2) % 4, direction)
        self.target[at] = np.where(stopped | (steps >= speed), now, wanted)

    # -- what agents see -------------------------------------------------------------------------------------

    def observe(self, at: Boards) -> NDArray[np.float32]:
        """[n, agents, FEATURES] what every agent sees; a dead one sees nothing. It changes nothing."""
        cells, alive, scale = self.agents[at], self.alive(at), self.rules.size - 1
        seen = np.zeros((*cells.shape, FEATURES), np.float32)
        seen[..., 0], seen[..., 1] = self.x.take(cells) / scale, self.y.take(cells) / scale
        # The view of a dead agent is that from the first corner, until it is wiped out.
        view = np.where(alive, cells, self.starts[0])[..., None] + self.window
        planes = seen[..., PLACE:-SHARED].reshape(*cells.shape, 3, VIEW * VIEW)
        planes[..., 0, :] = self.blocked(at, view)
        for other in range(self.rules.agents):
            planes[..., 1, :] += view == cells[:, None, other, None]
        planes[..., 1, VIEW * VIEW // 2] = 0.0
        planes[..., 2, :] = view == self.target[at][:, None, None]
        # What was told is known to all who live.
        shared = self.shared[at]
        told = shared != self.nowhere
        seen[..., -3] = told[:, None]
        seen[..., -2] = (told * self.x.take(shared) / scale)[:, None]
        seen[..., -1] = (told * self.y.take(shared) / scale)[:, None]
        seen *= alive[..., None]
        return seen

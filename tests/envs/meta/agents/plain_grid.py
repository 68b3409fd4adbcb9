"""GridWorldMultiAgent again, in plain Python on one game: dictionaries and pairs in place of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from envs.meta.agents.grid_board import GridRules
from utils.seeding import episode_seeds, uniforms

Cell = tuple[int, int]
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0))


def kings_moves(first: Cell, second: Cell) -> int:
    return max(abs(first[0] - second[0]), abs(first[1] - second[1]))


def moved(cell: Cell, step: Cell) -> Cell:
    return cell[0] + step[0], cell[1] + step[1]


@dataclass
class PlainGrid:
    """One game, begun by its constructor."""

    rules: GridRules
    home: Cell
    layout: int
    seed: int
    agents: dict[int, Cell] = field(default_factory=dict)
    told: Cell | None = None
    time: int = 0

    def __post_init__(self) -> None:
        last = self.rules.size - 1
        self.target = self.home
        starts = ((0, 0), (last, last), (0, last), (last, 0))[: self.rules.agents]
        self.agents = dict(enumerate(starts))
        self.heading = math.floor(4 * self._draws(self.seed, 1)[0])
        draws = self._draws(self.layout, 4 * self.rules.obstacles)
        self.obstacles: set[Cell] = set()
        for rectangle in range(self.rules.obstacles):
            x, y, width, height = draws[4 * rectangle : 4 * rectangle + 4]
            left, low = math.floor(self.rules.size * x), math.floor(self.rules.size * y)
            self.obstacles |= {
                (left + i, low + j)
                for i in range(1 + math.floor(3 * width))
                for j in range(1 + math.floor(3 * height))
            }
        self.obstacles -= {moved(start, step) for start in starts for step in STEPS} | {self.home}

    @staticmethod
    def _draws(seed: int, count: int) -> list[float]:
        return uniforms(np.array([seed], np.uint64), count)[0].tolist()

    def closed(self, cell: Cell) -> bool:
        return cell in self.obstacles or not all(0 <= part < self.rules.size for part in cell)

    def turn(self, agent: int, action: int) -> float:
        if agent not in self.agents:
            return 0.0
        wanted = moved(self.agents[agent], STEPS[action])
        others = {cell for other, cell in self.agents.items() if other != agent}
        if not self.closed(wanted) and wanted not in others:
            self.agents[agent] = wanted
        distance = kings_moves(self.agents[agent], self.target)
        watchers = sum(kings_moves(cell, self.target) <= 2 for cell in self.agents.values())
        if distance <= 1:
            if self.rules.death_on_sight:
                del self.agents[agent]
            return -self.rules.closeness_cost
        if distance <= 2 and (watchers > 1 or not self.rules.together):
            return 1 - self.rules.closeness_cost
        return -0.01

    def end_cycle(self) -> None:
        sees = any(kings_moves(cell, self.target) <= 2 for cell in self.agents.values())
        self.told = self.target if sees else None
        self.time += 1
        if self.rules.target_speed == 0:
            return
        key = episode_seeds(np.array([self.seed], np.uint64), np.array([self.time]))[0]
        turns, whereto, steps = self._draws(int(key), 3)
        if turns < 0.3 * self.rules.target_speed:
            self.heading = math.floor(4 * whereto)
        wanted = moved(self.target, STEPS[self.heading])
        if self.closed(wanted) or wanted in self.agents.values():
            self.heading = (self.heading + 2) % 4
        elif steps < self.rules.target_speed:
            self.target = wanted

    def seen_by(self, agent: int) -> list[float]:
        """What an agent sees, number by number."""
        if agent not in self.agents:
            return [0.0] * 80
        here, scale = self.agents[agent], self.rules.size - 1
        view = [moved(here, (x, y)) for x in range(-2, 3) for y in range(-2, 3)]
        others = [cell for other, cell in self.agents.items() if other != agent]
        told = (0, 0) if self.told is None else self.told
        return [
            *(part / scale for part in here),
            *(float(self.closed(cell)) for cell in view),
            *(float(cell in others) for cell in view),
            *(float(cell == self.target) for cell in view),
            float(self.told is not None),
            *(part / scale for part in told),
        ]

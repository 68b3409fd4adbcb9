"""GridNavi: a walk to a goal in an unknown cell of a grid, or behind an unknown door of a hall."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shelf, Split, TaskFamily
from envs.meta.grid.floor_plan import ACTION_SPACE, FloorPlan, WalkShard, walk_to
from envs.meta.kernels import split_choices
from envs.meta.pictures import GOAL, Colour
from utils.options import OptionError, option

START = (0, 0)


class GridVariant(Enum):
    """The variants of the task.

    `plain`; `show`: the goal is the first observation of every episode; `dense`: a reward that falls with the
    distance; `hall`: a corridor with doors.
    """

    plain = "plain"
    show = "show"
    dense = "dense"
    hall = "hall"


@dataclass
class GridNaviConfig(EnvConfig):
    """Options of GridNavi; the defaults are VariBAD's."""

    family: str = "GridNavi"
    max_rollouts_per_task: int = option(4, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(15, "H: environment steps in an episode", low=1)
    variant: GridVariant = option(
        GridVariant.plain,
        "plain, show the goal as the first observation, a dense reward, or a hall with doors",
    )
    size: int = option(5, "cells along a side of the grid, or along the hall", low=3, high=100)
    door_every: int = option(1, "the distance between doors, in cells, of variant=hall", low=1)


_LONG_HALL = {"variant": GridVariant.hall, "size": 60, "max_episode_steps": 200}


class GridNavi(TaskFamily):
    """A walker has to find a goal in an unknown cell of a grid.

    Task: the goal's cell (x, y), any of the 5 x 5 but (0, 0), (0, 1), (1, 0) and (1, 1): 21 goals, shared by
    training and tests. Observation: the cell (x, y), from (0, 0) in every episode. Action: stay, up, right,
    down, left; a move out of the grid stays. Reward: 1 on the goal, else -0.1, of the cell after the step.
    H=15, k=4. The episode never ends by itself. Info: the Manhattan distance to the goal, success (on it
    now).

    variant=show: the first observation of every episode is the goal. variant=dense: off the goal the reward
    is minus the Manhattan distance divided by `size`. variant=hall: a corridor (0, 0) to (size - 1, 0) with a
    door (x, 1) above every `door_every`-th cell but the first; the goal is behind one of them; a door is
    entered by up from below and left by down only.

    Published as GridNavi-v0 of VariBAD (the defaults); GridNavi-show_start, GridNavi-dense, Grid7-15 (size=7)
    and Hall-L60H200 (variant=hall, size=60, H=200) of hyper. Departure: there show_start shows the goal in
    place of the start's cell whenever a step ends there and not after a reset, here in the first row of every
    episode. hyper's other halls, which pay 0.1 for the first look behind a door in a trial, are not offered.
    """

    Config = GridNaviConfig
    shelf = Shelf.grid
    config: GridNaviConfig
    references = (
        Reference(oracle=11.07, random=-1.17),
        Reference(oracle=11.07, random=-1.17, options={"variant": GridVariant.show}),
        Reference(oracle=9.53, random=-10.63, options={"variant": GridVariant.dense}),
        Reference(oracle=12.25, random=-0.53, options={"variant": GridVariant.hall}),
        Reference(oracle=9.01, random=-1.34, options={"size": 7}),
        Reference(oracle=167.0, random=-18.4, options=_LONG_HALL),
    )

    def __init__(self, config: GridNaviConfig) -> None:
        super().__init__(config)
        if config.variant is GridVariant.hall and config.door_every >= config.size:
            raise OptionError(
                f"GridNavi: a hall of size={config.size} with door_every={config.door_every} has no door."
            )
        if config.variant is not GridVariant.hall and config.door_every != 1:
            raise OptionError(
                f"GridNavi: door_every={config.door_every} is of the hall's doors: it needs variant=hall."
            )
        self._plan = _plan_of(config)
        self._goals = _goals_of(config)
        self.spec = EnvSpec(
            name="GridNavi",
            obs_space=self._plan.obs_space,
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=("distance", "success"),
            split=Split.shared,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        numbers = split_choices(rng, n, tuple(range(len(self._goals))), split)
        return self._goals[numbers.astype(np.int64)]

    def difficulty(self, tasks: NDArray[np.float64]) -> NDArray[np.float64]:
        # The steps from the start to the goal.
        return np.abs(tasks - START).sum(1)

    def make_shard(self, num_slots: int, threads: int = 1) -> GridNaviShard:
        return GridNaviShard(num_slots, self._plan, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        assert isinstance(obs, np.ndarray)
        cell = obs[:, :2].astype(np.float64)
        # An observation that shows the goal to a walker at a distance from it is the start row.
        if self.config.variant is GridVariant.show:
            shown = (cell == task).all(axis=1) & (info[:, 0] > 0)
            cell[shown] = START
        # A walker behind a wrong door has to leave it by down before it can walk on.
        in_hall = self.config.variant is GridVariant.hall
        behind_wrong_door = (cell[:, 1] > 0) & (cell[:, 0] != task[:, 0]) & in_hall
        return walk_to(cell, np.where(behind_wrong_door[:, None], cell * (1.0, 0.0), task))


class GridNaviShard(WalkShard):
    """Slots of GridNavi."""

    def __init__(self, num_slots: int, plan: FloorPlan, config: GridNaviConfig) -> None:
        super().__init__(num_slots, plan, START)
        self._variant, self._size = config.variant, config.size
        self._goal = np.zeros((num_slots, 2))

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self._goal[slots] = tasks
        # A start has an info, and its reward is not used.
        self.score(slots, self._cell[slots])
        if self._variant is GridVariant.show:
            self._obs[slots] = tasks

    def score(self, at: NDArray[np.int64] | slice, cell: NDArray[np.int64]) -> NDArray[np.float64]:
        offset = np.abs(self._plan.places[cell] - self._goal[at])
        distance = offset[:, 0] + offset[:, 1]
        on_goal = distance == 0
        self.rows.info[at, 0] = distance
        self.rows.info[at, 1] = on_goal
        elsewhere = -distance / self._size if self._variant is GridVariant.dense else -0.1
        return np.where(on_goal, 1.0, elsewhere)

    def marks(self, slot: int) -> list[tuple[int, Colour]]:
        return [(int(self._plan.number(self._goal[slot : slot + 1])[0]), GOAL)]


def _plan_of(config: GridNaviConfig) -> FloorPlan:
    """The square grid, or the corridor below its doors."""
    if config.variant is not GridVariant.hall:
        return FloorPlan(("." * config.size,) * config.size)
    # A door is a cell with walls on both sides, above every `door_every`-th cell but the first.
    has_door = [x > 0 and x % config.door_every == 0 for x in range(config.size)]
    doors = "".join("|" if door else " " for door in has_door)
    return FloorPlan((doors, "." * config.size))


def _goals_of(config: GridNaviConfig) -> NDArray[np.float64]:
    """[G, 2] the cells where a goal can be."""
    if config.variant is GridVariant.hall:
        cells = [(x, 1) for x in range(config.door_every, config.size, config.door_every)]
    else:
        # Not the start and the cells that touch it.
        cells = [(x, y) for y in range(config.size) for x in range(config.size) if max(x, y) > 1]
    return np.array(cells, np.float64)

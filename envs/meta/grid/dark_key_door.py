"""DarkKeyDoor: a dark room with a hidden key and a hidden door, which only opens with the key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.meta.kernels import checked_choices, index_of, split_draws
from envs.meta.pictures import GOAL, GROUND, HINT, ROBOT, tiles
from utils.options import option

# What the actions add to (x, y) before they are shuffled: down, left, up, right, stay.
MOVES = np.array([(0, -1), (-1, 0), (0, 1), (1, 0), (0, 0)], np.int64)
DOWN, LEFT, UP, RIGHT, STAY = range(5)


class RoomStart(Enum):
    """Where episodes start: `random`, in a cell that is part of the task; `corner`, always in (0, 0)."""

    random = "random"
    corner = "corner"


@dataclass
class DarkKeyDoorConfig(EnvConfig):
    """Options of DarkKeyDoor; the defaults are the dark room of AMAGO."""

    family: str = "DarkKeyDoor"
    max_rollouts_per_task: int = option(10, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(50, "H: environment steps in an episode", low=1)
    size: int = option(9, "rows and columns of the room", low=2, high=100)
    start: RoomStart = option(
        RoomStart.random, "where episodes start: in a cell that belongs to the task, or in (0, 0)"
    )
    shuffle_actions: bool = option(False, "whether the task also permutes the five actions")


class DarkKeyDoor(TaskFamily):
    """A walker in a dark room has to find a hidden key, and then the hidden door that it opens.

    Task: [start x, start y, key x, key y, door x, door y], independent uniform cells of the 9 x 9 room, which
    may coincide; with shuffle_actions five more numbers, the move that each action makes (in the order
    below). Observation: [x / 9, y / 9, has the key, t / H], where t counts the steps of this episode. Action:
    down, left, up, right, stay; walls stop. Reward: 1 for the key, when a step ends on its cell, and 1 for
    the door, when a later step ends on its cell. Terminated: when the door is opened. H=50, k=10. Info:
    success (the door is open). No quantity lags.

    Published as the dark room with key and door of AMAGO: start=random in its comparison of agents,
    start=corner in its comparison with Algorithm Distillation. There a trial is 500 steps, so that an agent
    that opens the door sooner plays more episodes; here a trial is k=10 episodes, at most 500 steps and a
    return of 20, and only the discount asks for haste. The variant that shows the cells is `oracle`. The
    splits are disjoint.
    """

    Config = DarkKeyDoorConfig
    shelf = Shelf.grid
    config: DarkKeyDoorConfig
    references = (
        Reference(oracle=2.0, random=0.25),
        Reference(oracle=2.0, random=0.235, options={"start": RoomStart.corner}),
    )
    options_without_effect = ("shuffle_actions",)

    def __init__(self, config: DarkKeyDoorConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="DarkKeyDoor",
            obs_space=spaces.Box(np.zeros(4, np.float32), np.array([1, 1, 1, np.inf], np.float32)),
            action_space=spaces.Discrete(len(MOVES)),
            task_dim=11 if config.shuffle_actions else 6,
            info_names=("success",),
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        def draw(count: int) -> NDArray[np.float64]:
            tasks = np.zeros((count, self.spec.task_dim))
            tasks[:, :6] = rng.integers(self.config.size, size=(count, 6))
            if self.config.start is RoomStart.corner:
                tasks[:, :2] = 0.0
            if self.config.shuffle_actions:
                tasks[:, 6:] = rng.permuted(np.tile(np.arange(len(MOVES)), (count, 1)), axis=1)
            return tasks

        return split_draws(draw, n, split)

    def make_shard(self, num_slots: int, threads: int = 1) -> DarkKeyDoorShard:
        return DarkKeyDoorShard(num_slots, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """To the key, then to the door, first along x, then along y."""
        assert isinstance(obs, np.ndarray)
        position = np.rint(obs[:, :2] * float(self.config.size))
        offset = np.where(obs[:, 2:3] > 0, task[:, 4:6], task[:, 2:4]) - position
        along_y = np.where(offset[:, 1] > 0, UP, np.where(offset[:, 1] < 0, DOWN, STAY))
        move = np.where(offset[:, 0] > 0, RIGHT, np.where(offset[:, 0] < 0, LEFT, along_y))
        if not self.config.shuffle_actions:
            return move
        # The action that makes this move in this task.
        return np.argmax(task[:, 6:] == move[:, None], axis=1)


class DarkKeyDoorShard(Shard):
    """Slots of DarkKeyDoor."""

    def __init__(self, num_slots: int, config: DarkKeyDoorConfig) -> None:
        self._num_slots = num_slots
        self._size, self._horizon = config.size, config.max_episode_steps
        self._start, self._key, self._door, self._position = (
            np.zeros((num_slots, 2), np.int64) for _ in range(4)
        )
        self._moves = np.tile(np.arange(len(MOVES)), (num_slots, 1))
        self._has_key = np.zeros(num_slots, np.bool_)
        self._time = np.zeros(num_slots, np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the walkers at the start of their task, without the key."""
        self._position[slots] = tasks[:, :2]
        self._key[slots] = tasks[:, 2:4]
        self._door[slots] = tasks[:, 4:6]
        if tasks.shape[1] > 6:
            self._moves[slots] = tasks[:, 6:]
        self._has_key[slots] = False
        self._time[slots] = 0
        self._write(slots)
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move the walkers, pick up the key or open the door."""
        at = index_of(slots, self._num_slots)
        # The task may permute the actions; walls stop.
        move = self._moves[slots, checked_choices(actions, slots, len(MOVES))]
        position = self._position[at] = np.minimum(
            np.maximum(self._position[at] + MOVES[move], 0), self._size - 1
        )
        # A door on the key's cell opens in a later step only, so the key counts as it was before.
        had = self._has_key[at].copy()
        found = ~had & _same(position, self._key[at])
        opened = had & _same(position, self._door[at])
        self._has_key[at] = had | found
        self._time[at] += 1
        rows = self.rows
        rows.reward[at] = found | opened
        rows.terminated[at] = opened
        rows.truncated[at] = False
        rows.info[at, 0] = opened
        self._write(at)

    def _write(self, at: NDArray[np.int64] | slice) -> None:
        obs = self.rows.obs
        assert isinstance(obs, np.ndarray)
        obs[at, :2] = self._position[at] / self._size
        obs[at, 2] = self._has_key[at]
        obs[at, 3] = self._time[at] / self._horizon

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The key in yellow until it is taken, the door in green, the walker in dark blue; y upwards."""
        colours = np.full((self._size, self._size, 3), GROUND, np.uint8)
        colours[tuple(self._door[slot])] = GOAL
        if not self._has_key[slot]:
            colours[tuple(self._key[slot])] = HINT
        colours[tuple(self._position[slot])] = ROBOT
        return tiles(colours.swapaxes(0, 1)[::-1])


def _same(cells: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n] whether [n, 2] cells are equal."""
    return (cells[:, 0] == others[:, 0]) & (cells[:, 1] == others[:, 1])

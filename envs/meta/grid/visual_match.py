"""PassiveVisualMatch: a colour in the first room says which of three doors to choose in the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Obs, Reference
from envs.meta.grid.pixel_room import (
    ACTION_SPACE,
    COLOURED_DOOR,
    CUE,
    GROUND,
    INFO_NAMES,
    NORTH,
    OBS_SPACE,
    PixelRoomConfig,
    PixelRoomFamily,
    PixelRoomShard,
    apple_action,
    cell,
    room,
    steps_to,
)
from envs.meta.kernels import split_choices

# Steps in the first room and in the last.
LOOKING, CHOOSING = 15, 15

DOOR_REWARD = 5.0

# The columns of the red, the green and the blue door, in row 1 of the last room.
DOOR_COLUMNS = np.array([2, 5, 8])

_START = (2, 5)
_CUE_CELLS = np.array(
    [cell(row, column) for row in (1, 2, 3) for column in (4, 5, 6) if (row, column) != _START]
)
_FIRST_ROOM = room([(1, 4, 3, 6)], [(*_START, *_START)])
_LAST_ROOM = room([(0, 0, 4, 10), (4, 3, 6, 7)], [(1, 1, 3, 9), (4, 4, 5, 6)])
_LAST_START, _DOOR_CELLS = np.int64(cell(5, 5)), cell(1, DOOR_COLUMNS)
_LAST_ROOM[_DOOR_CELLS] = COLOURED_DOOR + np.arange(3)


@dataclass
class PassiveVisualMatchConfig(PixelRoomConfig):
    """Options of PassiveVisualMatch; the defaults are those of Memory-RL."""

    family: str = "PassiveVisualMatch"
    other_steps = LOOKING + CHOOSING


class PassiveVisualMatch(PixelRoomFamily):
    """A colour that is shown in a first room says which of three doors to choose in a third.

    Task: the colour, 0 red, 1 green, 2 blue, equally often. Observation: an image of 5 x 5 pixels around the
    player, uint8, in a room of 7 x 11 cells. Action: north, south, west, east; a move into a wall stays. An
    episode has three rooms, which are left after 15, D and 15 steps. The first: a closed cell, one of whose 8
    walls has the colour. The second: 10 apples in a random choice of 22 cells; an eaten one is back 21 steps
    later. The third: a red, a green and a blue door, from west to east; the first one that is touched is the
    choice, and the doors are gone. Reward: 1 for an apple, 5 for the door of the colour. The wall of the
    colour and the apples are drawn anew in every episode.

    H = 30 + D = 90, k = 1. The end of the last room is `terminated`, because the game is over then. Info:
    time, row, column, apples (a sum of 2^place), success (the right door was chosen). Split: shared.

    Published as Passive Visual Match of Memory-RL (apple_steps=60 to 1000). Departure: there the order of the
    three doors is drawn once for every environment that is built, here it is always the same.
    """

    Config = PassiveVisualMatchConfig
    references = (Reference(oracle=27.1, random=5.68),)

    def __init__(self, config: PassiveVisualMatchConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="PassiveVisualMatch",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1,
            info_names=INFO_NAMES,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, (0.0, 1.0, 2.0), split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> PassiveVisualMatchShard:
        return PassiveVisualMatchShard(num_slots, (LOOKING, self.config.apple_steps, CHOOSING))

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """To the apples; then north through the passage, along its far side, and north into the door."""
        time, row, column = info[:, 0], info[:, 1], info[:, 2]
        door = DOOR_COLUMNS[task[:, 0].astype(np.int64)]
        # In the passage (rows below 3) straight north; beyond it first sideways to the column of the door.
        to_door = np.where(row > 3, NORTH, steps_to(1 - row, door - column, vertical_first=False))
        return np.where(time < LOOKING + self.config.apple_steps, apple_action(info), to_door)


class PassiveVisualMatchShard(PixelRoomShard):
    """Slots of PassiveVisualMatch."""

    def __init__(self, num_slots: int, steps: tuple[int, int, int]) -> None:
        super().__init__(num_slots, steps)
        self._colour = np.zeros(num_slots, np.int64)

    def enter_first(
        self, slots: NDArray[np.int64], tasks: NDArray[np.float64], draws: NDArray[np.float64]
    ) -> None:
        self._colour[slots] = np.rint(tasks[:, 0])
        self.enter(slots, _FIRST_ROOM, np.int64(cell(*_START)))
        # The draw places the colour in one of the walls around the player.
        self._room[slots, _CUE_CELLS[(draws * len(_CUE_CELLS)).astype(np.int64)]] = CUE + self._colour[slots]

    def enter_last(self, slots: NDArray[np.int64]) -> None:
        self.enter(slots, _LAST_ROOM, _LAST_START)

    def touch(self, slots: NDArray[np.int64], symbols: NDArray[np.uint8]) -> NDArray[Any]:
        # The first touch is the choice: all doors vanish.
        self._room[slots[:, None], _DOOR_CELLS] = GROUND
        right = symbols == COLOURED_DOOR + self._colour[slots]
        self._success[slots] = right
        return DOOR_REWARD * right

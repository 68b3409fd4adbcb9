"""Three rooms seen through a window of 5 x 5 pixels: what KeyToDoor and PassiveVisualMatch share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, Shard, Shelf, TaskFamily
from envs.meta.kernels import checked_choices, index_of
from envs.meta.pictures import tiles
from utils.options import option
from utils.seeding import uniforms

NORTH, SOUTH, WEST, EAST = range(4)

# The size of a room.
ROWS, COLUMNS = 7, 11
# How many cells the player sees on each side; also the width of the edge around a stored room.
SIGHT = 2

# A room is stored as a flat array, with its edge, so that a move adds a number to the player's cell, and the
# window of pixels is a fixed set of numbers to add.
WIDTH, CELLS = COLUMNS + 2 * SIGHT, (ROWS + 2 * SIGHT) * (COLUMNS + 2 * SIGHT)
MOVES = np.array([-WIDTH, WIDTH, -1, 1])
WINDOW = (np.arange(-SIGHT, SIGHT + 1)[:, None] * WIDTH + np.arange(-SIGHT, SIGHT + 1)).ravel()
CENTRE = len(WINDOW) // 2

# What can be in a cell. CUE and COLOURED_DOOR are the first of three each: red, green, blue. The player
# cannot enter the cells from EDGE to the last CUE; from APPLE on, entering a cell does something.
GROUND, EDGE, WALL, LAMP, DOOR, CUE = range(6)
PLAYER, APPLE, KEY, OPEN_DOOR, COLOURED_DOOR = range(8, 13)

_CUE_COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
_GROUND, _DOOR = (204, 204, 204), (134, 206, 235)
# [15, 3] the colours of what can be in a cell.
PALETTE = np.array(
    [
        _GROUND,
        _GROUND,
        (25, 25, 25),
        (255, 255, 255),
        _DOOR,
        *_CUE_COLOURS,
        (228, 148, 109),
        (140, 178, 0),
        (159, 81, 44),
        _DOOR,
        *_CUE_COLOURS,
    ],
    np.uint8,
)

# Apples in the room.
APPLES = 10
# An apple is back when more than this many steps have passed since it was eaten.
RESPAWN = 20
# The time at which an apple was eaten that is still there.
NEVER = 2**40

OBS_SPACE = spaces.Dict({"image": spaces.Box(0, 255, (2 * SIGHT + 1, 2 * SIGHT + 1, 3), np.uint8)})
ACTION_SPACE = spaces.Discrete(4)
INFO_NAMES = ("time", "row", "column", "apples", "success")

# First row, first column, last row, last column.
Box = tuple[int, int, int, int]


@dataclass
class PixelRoomConfig(EnvConfig):
    """Options of the families with three rooms."""

    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        0,
        "H: time limit of an episode; 0: the steps of the three rooms",
        low=0,
    )
    apple_steps: int = option(60, "D: steps in the room with the apples, between the cue and its use", low=1)

    # The number of steps in the first room and in the last, together.
    other_steps: ClassVar[int]

    @property
    def game_steps(self) -> int:
        """Steps after which the game is over."""
        return self.other_steps + self.apple_steps

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or self.game_steps)


class PixelRoomFamily(TaskFamily, ABC):
    """What the families with three rooms share: their shelf, and that their game ends by itself."""

    shelf = Shelf.grid
    config: PixelRoomConfig

    @classmethod
    def options_of_return(cls, config: EnvConfig) -> dict[str, Any]:
        """All options; a time limit beyond the end of the game counts as that end."""
        assert isinstance(config, PixelRoomConfig)
        limit = min(config.max_episode_steps, config.game_steps)
        return super().options_of_return(config) | {"max_episode_steps": limit}


def cell(row: Any, column: Any) -> Any:
    """The number of the cell at (row, column) of a room."""
    return (row + SIGHT) * WIDTH + column + SIGHT


def room(walls: list[Box], floors: list[Box]) -> NDArray[np.uint8]:
    """[CELLS] a stored room.

    Boxes of wall, then boxes of ground, are drawn on ground of ROWS x COLUMNS cells, which the edge
    surrounds.
    """
    grid = np.full((ROWS + 2 * SIGHT, WIDTH), EDGE, np.uint8)
    for symbol, boxes in ((GROUND, [(0, 0, ROWS - 1, COLUMNS - 1)]), (WALL, walls), (GROUND, floors)):
        for top, left, bottom, right in boxes:
            grid[top + SIGHT : bottom + SIGHT + 1, left + SIGHT : right + SIGHT + 1] = symbol
    return grid.ravel()


APPLE_ROOM = room([(0, 0, 6, 10)], [(1, 1, 5, 9)])
APPLE_START = (5, 5)
# [22, 2] the places where apples can be: every other cell.
APPLE_PLACES = np.array(
    [(r, c) for r in range(1, 6) for c in range(1, 10) if (r + c) % 2 == 0 and (r, c) != APPLE_START]
)

_APPLE_CELLS = cell(APPLE_PLACES[:, 0], APPLE_PLACES[:, 1])


class PixelRoomShard(Shard, ABC):
    """Slots of a game of three rooms, each of which is left after a fixed number of steps.

    A subclass furnishes the first and the last room. Info: the time, the player's row and column, the apples
    that can be eaten now as a sum of 2^place over `APPLE_PLACES`, and success in the last room. The end of
    the last room is the end of the game: `terminated`.
    """

    def __init__(self, num_slots: int, steps: tuple[int, int, int]) -> None:
        self._num_slots = num_slots
        self._room_ends = (steps[0], steps[0] + steps[1], sum(steps))
        self._time, self._cell = (np.zeros(num_slots, np.int64) for _ in range(2))
        self._room = np.zeros((num_slots, CELLS), np.uint8)
        self._apples = np.zeros((num_slots, APPLES), np.int64)
        self._eaten = np.full((num_slots, APPLES), NEVER)
        self._success = np.zeros(num_slots, np.bool_)

    @abstractmethod
    def enter_first(
        self, slots: NDArray[np.int64], tasks: NDArray[np.float64], draws: NDArray[np.float64]
    ) -> None:
        """Furnish the first room of an episode and place the player by `enter`.

        `draws` [n] are uniform in [0, 1).
        """

    @abstractmethod
    def enter_last(self, slots: NDArray[np.int64]) -> None:
        """Furnish the last room and place the player by `enter`."""

    @abstractmethod
    def touch(self, slots: NDArray[np.int64], symbols: NDArray[np.uint8]) -> NDArray[Any]:
        """The reward for standing on these things, none of them an apple; it also changes the rooms."""

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the players into the first room."""
        draws = uniforms(seeds, 1 + len(APPLE_PLACES))
        # Ten places for apples without repetition: the first ten of a shuffled list.
        shuffled = np.argsort(draws[:, 1:], axis=1, kind="stable")
        self._apples[slots] = shuffled[:, :APPLES]
        self._time[slots] = 0
        self._success[slots] = False
        self.enter_first(slots, tasks, draws[:, 0])
        self._write(slots, slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move, touch things, let apples come back, and change rooms."""
        choices = checked_choices(actions, slots, 4)
        at = index_of(slots, self._num_slots)
        # Move, unless into something that cannot be entered.
        cells = self._room.reshape(-1)
        base, old = slots * CELLS, self._cell[at]
        new = old + MOVES[choices]
        ahead = cells[base + new]
        new = np.where((ahead >= EDGE) & (ahead < PLAYER), old, new)
        self._cell[at] = new
        self._time[at] += 1
        time, rows = self._time[at], self.rows
        rows.reward[at] = 0.0
        # Eat, take or open what lies in the new cell.
        here = cells[base + new]
        if (here >= APPLE).any():
            self._touch(slots, here)
        # Apples come back, whether or not the player stands on their place.
        due = time[:, None] > self._eaten[at] + RESPAWN
        if due.any():
            slot, which = slots[np.nonzero(due)[0]], np.nonzero(due)[1]
            self._eaten[slot, which] = NEVER
            self._room[slot, _APPLE_CELLS[self._apples[slot, which]]] = APPLE
        # After a room's last step the next row already shows the next room.
        self._change_rooms(slots, time)
        rows.terminated[at] = time >= self._room_ends[2]
        rows.truncated[at] = False
        self._write(slots, at)

    def _touch(self, slots: NDArray[np.int64], here: NDArray[np.uint8]) -> None:
        """Eat apples for 1 each, and let the subclass reward all other things."""
        eating = slots[here == APPLE]
        self._room[eating, self._cell[eating]] = GROUND
        # Which of its ten apples a slot has eaten, so that this one comes back later.
        which = np.argmax(_APPLE_CELLS[self._apples[eating]] == self._cell[eating, None], axis=1)
        self._eaten[eating, which] = self._time[eating]
        self.rows.reward[eating] = 1.0
        things = here > APPLE
        if things.any():
            self.rows.reward[slots[things]] = self.touch(slots[things], here[things])

    def _change_rooms(self, slots: NDArray[np.int64], time: NDArray[np.int64]) -> None:
        """Put the players whose time in a room is over into the next one."""
        # The last row of a room is the first one of the next, so what its last step changed is not seen.
        if len(entering := slots[time == self._room_ends[0]]):
            self.enter(entering, APPLE_ROOM, np.int64(cell(*APPLE_START)))
            self._room[entering[:, None], _APPLE_CELLS[self._apples[entering]]] = APPLE
        if len(entering := slots[time == self._room_ends[1]]):
            self.enter_last(entering)

    def enter(
        self, slots: NDArray[np.int64], furnished: NDArray[np.uint8], start: NDArray[np.int64] | np.int64
    ) -> None:
        """Put these slots into a room, at a cell."""
        self._room[slots] = furnished
        self._cell[slots] = start
        self._eaten[slots] = NEVER

    def _write(self, slots: NDArray[np.int64], at: NDArray[np.int64] | slice) -> None:
        """Write the window around the player, and the info."""
        rows, here, time = self.rows, self._cell[at], self._time[at]
        assert isinstance(rows.obs, dict)
        symbols = self._room.reshape(-1)[(slots * CELLS + here)[:, None] + WINDOW]
        # The player is drawn over everything but an open door.
        symbols[:, CENTRE] = np.where(symbols[:, CENTRE] == OPEN_DOOR, OPEN_DOOR, PLAYER)
        rows.obs["image"][at] = PALETTE[symbols].reshape(-1, 2 * SIGHT + 1, 2 * SIGHT + 1, 3)
        # The apples that can be eaten now, as one number; outside their room there are none.
        among_apples = (time >= self._room_ends[0]) & (time < self._room_ends[1])
        apples = np.sum((1 << self._apples[at]) * (self._eaten[at] == NEVER), axis=1) * among_apples
        for column, value in enumerate(
            (time, here // WIDTH - SIGHT, here % WIDTH - SIGHT, apples, self._success[at])
        ):
            rows.info[at, column] = value

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The whole room in the colours of the game."""
        symbols = self._room[slot].copy()
        symbols[self._cell[slot]] = PLAYER
        return tiles(PALETTE[symbols].reshape(-1, WIDTH, 3)[SIGHT:-SIGHT, SIGHT:-SIGHT])


# -- scripted play -------------------------------------------------------------------------------------------


def steps_to(
    row: NDArray[Any], column: NDArray[Any], *, vertical_first: NDArray[np.bool_] | bool
) -> NDArray[np.int64]:
    """[n] the next action of a player that has to go so many rows down and columns to the right.

    It is NORTH for a player that is there.
    """
    vertical = np.where(row > 0, SOUTH, NORTH)
    horizontal = np.where(column > 0, EAST, WEST)
    return np.where((row != 0) & vertical_first | (column == 0), vertical, horizontal)


# The number of steps from each place to the middle of the room.
_REMOTENESS = np.abs(APPLE_PLACES - (3, 5)).sum(axis=1)


def apple_action(info: NDArray[np.float64]) -> NDArray[np.int64]:
    """[n] towards the nearest apple, and of several nearest ones the one farthest from the middle.

    That one lies on no later way.
    """
    # Which apples can be eaten, from the bits of the info.
    ripe = (info[:, 3].astype(np.int64)[:, None] >> np.arange(len(APPLE_PLACES)) & 1) > 0
    offset = APPLE_PLACES[None] - info[:, None, 1:3]
    distance = np.abs(offset).sum(axis=2)
    # The factor makes the distance decide first, and the remoteness only between equal distances.
    nearest = np.argmin(np.where(ripe, 8 * distance - _REMOTENESS, NEVER), axis=1)
    chosen = offset[np.arange(len(info)), nearest]
    return steps_to(chosen[:, 0], chosen[:, 1], vertical_first=False)

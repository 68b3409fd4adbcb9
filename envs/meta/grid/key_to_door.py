"""KeyToDoor: a key in the first room opens the door of the last room, long after it was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvSpec, Obs, Reference
from envs.meta.grid.pixel_room import (
    ACTION_SPACE,
    DOOR,
    GROUND,
    INFO_NAMES,
    KEY,
    LAMP,
    NORTH,
    OBS_SPACE,
    OPEN_DOOR,
    WALL,
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
SEARCH, OPENING = 15, 10

DOOR_REWARD = 5.0

KEY_PLACES = np.array([(row, column) for row in (1, 2) for column in range(3, 8)])
STARTS = np.array([(row, column) for row in (4, 5) for column in range(3, 8)])

_FIRST_ROOM = room([(0, 2, 6, 8)], [(1, 3, 2, 7), (3, 4, 3, 6), (4, 3, 5, 7)])
_LAST_ROOM = room([(1, 3, 5, 7)], [(2, 4, 4, 6)])
_LAST_START, _DOOR_CELL, _LAMP_CELL = (np.int64(cell(*place)) for place in ((3, 5), (1, 5), (0, 5)))


@dataclass
class KeyToDoorConfig(PixelRoomConfig):
    """Options of KeyToDoor; the defaults are Key-to-Door of Synthetic Returns, as Memory-RL has it."""

    family: str = "KeyToDoor"
    other_steps = SEARCH + OPENING


class KeyToDoor(PixelRoomFamily):
    """A key from a first room opens a door in a third; in the second room there are apples.

    Task: the key's row and column, one of 10 cells, equally often. Observation: an image of 5 x 5 pixels
    around the player, uint8, in a room of 7 x 11 cells. Action: north, south, west, east; a move into a wall
    stays. An episode has three rooms, which are left after 15, D and 10 steps. The first: the player starts
    in one of 10 cells, beyond a passage from the key, and takes the key by touching it (the image shows this,
    for one step, as a white lamp in the wall). The second: 10 apples in a random choice of 22 cells; an eaten
    one is back 21 steps later. The third: a door two steps north of the start, closed to a player without the
    key. Reward: 1 for an apple, 5 for the door, once. Start and apples are drawn anew in every episode.

    H = 25 + D = 85, k = 1. The end of the last room is `terminated`, because the game is over then. Info:
    time, row, column, apples (a sum of 2^place), success (the door was opened), key (was taken). Split:
    shared.

    Published as Key-to-Door of Synthetic Returns, in the version of Memory-RL (5 for the door; apple_steps=60
    to 500; an optimum of about 28 at 60, as given there). The oracle knows the key's place and sees all
    apples, but not when eaten ones come back.
    """

    Config = KeyToDoorConfig
    references = (Reference(oracle=27.1, random=5.53),)

    def __init__(self, config: KeyToDoorConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="KeyToDoor",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=(*INFO_NAMES, "key"),
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        numbers = split_choices(rng, n, tuple(range(len(KEY_PLACES))), split)
        return KEY_PLACES[numbers.astype(np.int64)].astype(np.float64)

    def make_shard(self, num_slots: int, threads: int = 1) -> KeyToDoorShard:
        return KeyToDoorShard(num_slots, (SEARCH, self.config.apple_steps, OPENING))

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """To the key through the middle of the passage, to the apples, to the door."""
        time, row, column = info[:, 0], info[:, 1], info[:, 2]
        # The passage is three cells wide: aim at its middle columns until it lies behind the player.
        beyond_passage = row > 3
        aim = np.where(beyond_passage, np.clip(task[:, 1], 4, 6), task[:, 1])
        to_key = steps_to(task[:, 0] - row, aim - column, vertical_first=row == 3)
        # The door of the last room is straight north of the start.
        later = np.where(time < SEARCH + self.config.apple_steps, apple_action(info), NORTH)
        return np.where(time < SEARCH, to_key, later)


class KeyToDoorShard(PixelRoomShard):
    """Slots of KeyToDoor."""

    def __init__(self, num_slots: int, steps: tuple[int, int, int]) -> None:
        super().__init__(num_slots, steps)
        self._key = np.zeros(num_slots, np.bool_)
        self._lamp_lit = np.zeros(num_slots, np.bool_)

    def enter_first(
        self, slots: NDArray[np.int64], tasks: NDArray[np.float64], draws: NDArray[np.float64]
    ) -> None:
        start = STARTS[(draws * len(STARTS)).astype(np.int64)]
        key = np.rint(tasks).astype(np.int64)
        self.enter(slots, _FIRST_ROOM, cell(start[:, 0], start[:, 1]))
        self._room[slots, cell(key[:, 0], key[:, 1])] = KEY
        self._key[slots] = self._lamp_lit[slots] = False

    def enter_last(self, slots: NDArray[np.int64]) -> None:
        self.enter(slots, _LAST_ROOM, _LAST_START)
        # Only the key opens the door.
        self._room[slots, _DOOR_CELL] = np.where(self._key[slots], OPEN_DOOR, DOOR)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        # The lamp shines for one step.
        lit = slots[self._lamp_lit[slots]]
        self._room[lit, _LAMP_CELL] = WALL
        self._lamp_lit[lit] = False
        super().step(slots, actions)

    def touch(self, slots: NDArray[np.int64], symbols: NDArray[np.uint8]) -> NDArray[Any]:
        # The key is taken, and the lamp shows it.
        taking = slots[symbols == KEY]
        self._room[taking, self._cell[taking]] = GROUND
        self._room[taking, _LAMP_CELL] = LAMP
        self._key[taking] = self._lamp_lit[taking] = True
        # The door is rewarded once.
        opening = (symbols == OPEN_DOOR) & ~self._success[slots]
        self._success[slots] |= opening
        return DOOR_REWARD * opening

    def _write(self, slots: NDArray[np.int64], at: NDArray[np.int64] | slice) -> None:
        super()._write(slots, at)
        self.rows.info[at, len(INFO_NAMES)] = self._key[at]

"""The rooms that the pixel families share: how they are stored, the apples, and the scripted actions.

Their games are in the families' tests.
"""

from __future__ import annotations

import numpy as np

from envs.meta.grid.pixel_room import (
    APPLE_PLACES,
    EAST,
    EDGE,
    GROUND,
    NORTH,
    SIGHT,
    SOUTH,
    WALL,
    WEST,
    WIDTH,
    apple_action,
    cell,
    room,
    steps_to,
)
from envs.meta.make_env import make_family
from tests.envs.meta.grid.plain_rooms import PLACES
from tests.envs.meta.played import Played


def test_a_room_is_walls_with_floors_in_them_on_ground_that_ends() -> None:
    grid = room([(1, 3, 5, 7)], [(2, 4, 4, 6)])
    shown = grid.reshape(-1, WIDTH)[SIGHT:-SIGHT, SIGHT:-SIGHT]
    letters = ["".join({GROUND: ".", WALL: "X"}[symbol] for symbol in line) for line in shown.tolist()]
    assert letters == ["...........", "...XXXXX...", *["...X...X..."] * 3, "...XXXXX...", "..........."]
    assert (grid == EDGE).sum() == grid.size - 7 * 11
    assert grid[cell(1, 3)] == WALL != grid[cell(0, 3)]


def test_apples_can_be_in_every_other_cell_but_the_start() -> None:
    assert APPLE_PLACES.tolist() == [list(place) for place in PLACES]


def test_an_eaten_apple_is_back_after_twenty_one_steps() -> None:
    family = make_family("KeyToDoor", apple_steps=100)
    played = Played(family, 1)
    rows = played.reset([0], family.sample_tasks(np.random.default_rng(0), 1, "train"), [3])
    while rows.reward[0] == 0:
        rows = played.step([0], apple_action(rows.info) if rows.info[0, 0] >= 15 else [SOUTH])
    eaten, into = int(rows.info[0, 0]), int(rows.info[0, 3])
    place = PLACES.index((int(rows.info[0, 1]), int(rows.info[0, 2])))
    assert into.bit_count() == 9 and not into >> place & 1
    aside, back = (NORTH, SOUTH) if PLACES[place][0] > 1 else (SOUTH, NORTH)
    # Only every other cell can have an apple, so that one step aside and back meets no other.
    for step in range(21):
        assert not int(rows.info[0, 3]) >> place & 1
        rows = played.step([0], [back if step % 2 else aside] if step < 20 else [aside])
    assert rows.info[0, 0] == eaten + 21 and int(rows.info[0, 3]) >> place & 1
    assert played.step([0], [back]).reward[0] == 1


def test_the_scripted_way_takes_the_named_axis_first_and_ends() -> None:
    row, column = np.array([-2, 2, 0, 0, 3]), np.array([1, -1, -4, 0, 0])
    assert steps_to(row, column, vertical_first=False).tolist() == [EAST, WEST, WEST, NORTH, SOUTH]
    assert steps_to(row, column, vertical_first=True).tolist() == [NORTH, SOUTH, WEST, NORTH, SOUTH]


def test_the_nearest_apple_is_next_and_of_several_the_most_remote() -> None:
    def info(*apples: tuple[int, int]) -> np.ndarray:
        return np.array([[0.0, 3.0, 5.0, float(sum(1 << PLACES.index(apple) for apple in apples)), 0.0]])

    assert apple_action(info((3, 9), (1, 5)))[0] == NORTH
    assert apple_action(info((3, 9), (1, 1)))[0] == EAST
    assert (
        apple_action(
            np.array([[0.0, 3.0, 6.0, float(1 << PLACES.index((3, 9)) | 1 << PLACES.index((3, 3))), 0.0]])
        )[0]
        == EAST
    )

"""Walking on a grid: walls, doors, numbers of cells, and the way to a goal."""

from __future__ import annotations

import numpy as np

from envs.meta.grid.floor_plan import DOWN, LEFT, MOVES, RIGHT, STAY, UP, FloorPlan, walk_to

# A hall from (-1, 2) to (1, 2) with doors above its last two cells.
PLAN = FloorPlan((" ||", "..."), origin=(-1, 2))


def walked(place: tuple[int, int], *actions: int) -> tuple[int, int]:
    cell = int(PLAN.number(np.array([place], np.float64))[0])
    for action in actions:
        cell = int(PLAN.after[cell * len(MOVES) + action])
    x, y = PLAN.places[cell].tolist()
    return int(x), int(y)


def test_a_cell_has_one_number_and_one_place():
    numbers = np.arange(6)
    assert PLAN.number(PLAN.places).tolist() == numbers.tolist()
    assert PLAN.open.tolist() == [True, True, True, False, True, True]
    assert (PLAN.obs_space.low.tolist(), PLAN.obs_space.high.tolist()) == ([-1, 2], [1, 3])


def test_walls_and_the_edge_stop_a_walk():
    assert walked((-1, 2), RIGHT) == (0, 2)
    assert walked((-1, 2), RIGHT, STAY, LEFT) == (-1, 2)
    assert walked((-1, 2), LEFT) == (-1, 2)
    assert walked((-1, 2), DOWN) == (-1, 2)
    assert walked((-1, 2), UP) == (-1, 2)


def test_a_door_is_entered_from_below_only():
    assert walked((0, 2), UP) == (0, 3)
    for action in (RIGHT, LEFT, UP, STAY):
        assert walked((0, 3), action) == (0, 3)
    assert walked((0, 3), DOWN) == (0, 2)


def test_the_way_is_along_x_then_along_y_then_over():
    cells = np.array([[0, 0], [2, 0], [1, 0], [1, 2], [1, 1]], np.float64)
    assert walk_to(cells, np.ones((5, 2))).tolist() == [RIGHT, LEFT, UP, DOWN, STAY]

"""Pictures of small worlds."""

from __future__ import annotations

import numpy as np

from envs.meta.pictures import GOAL, GROUND, LINE, ROBOT, discs, tiles


def test_tiles_keep_their_places_and_are_parted_by_lines():
    colours = np.full((2, 4, 3), GROUND, np.uint8)
    colours[0, 3] = GOAL
    picture = tiles(colours)
    assert picture.shape == (100, 200, 3) and picture.dtype == np.uint8
    assert picture[25, 175].tolist() == list(GOAL)
    assert picture[75, 175].tolist() == list(GROUND)
    assert (picture[50] == LINE).all() and (picture[:, 150] == LINE).all()


def test_discs_lie_on_the_plane_with_y_upwards_and_later_ones_on_top():
    picture = discs([((0.0, 1.0), 0.4, GOAL), ((0.0, 1.0), 0.1, ROBOT)])
    assert picture[50, 100].tolist() == list(ROBOT)
    assert picture[50, 115].tolist() == list(GOAL)
    assert picture[150, 100].tolist() == list(GROUND)

"""Pictures of small worlds, as RGB arrays: tiles for grids, discs on a plane."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# About how many pixels the longer side of a picture has.
SIDE = 200

# Colours that mean the same in every family.
GROUND = (245, 245, 245)
WALL = (90, 90, 100)
ROBOT = (40, 60, 140)
GOAL = (120, 200, 120)
HINT = (230, 190, 80)
DANGER = (200, 90, 80)

# The grey of the lines between tiles.
LINE = 215

Colour = tuple[int, int, int]


def tiles(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture of a grid, with thin lines between its tiles.

    `colours` is [rows, columns, 3], with the first row on top.
    """
    size = max(SIDE // max(colours.shape[:2]), 4)
    picture = np.repeat(np.repeat(colours, size, axis=0), size, axis=1)
    picture[::size] = picture[:, ::size] = LINE
    return picture


def discs(
    shapes: Iterable[tuple[tuple[float, float], float, Colour]], extent: float = 2.0
) -> NDArray[np.uint8]:
    """A picture of discs ((x, y), radius, colour) on the plane [-extent, extent]^2, later ones on top."""
    # The coordinates of the pixels' middles; y points upwards, so rows are reversed.
    ticks = (np.arange(SIDE) + 0.5) * (2.0 * extent / SIDE) - extent
    picture = np.full((SIDE, SIDE, 3), GROUND, np.uint8)
    for (x, y), radius, colour in shapes:
        picture[(ticks[None, :] - x) ** 2 + (ticks[::-1, None] - y) ** 2 <= radius**2] = colour
    return picture

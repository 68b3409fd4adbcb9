"""Pictures of small worlds, as RGB arrays: tiles for grids, discs on a plane."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SIDE = 200
"""Pixels on the longer side of a picture, about."""

GROUND, WALL, ROBOT, GOAL, HINT, DANGER = (
    (245, 245, 245),
    (90, 90, 100),
    (40, 60, 140),
    (120, 200, 120),
    (230, 190, 80),
    (200, 90, 80),
)
"""Colours that mean the same in every family."""

LINE = 215
"""Grey of the lines between tiles."""

Colour = tuple[int, int, int]


def tiles(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[rows, columns, 3] colours of a grid, the first row on top, as a picture with thin lines between the
    tiles.
    """
    size = max(SIDE // max(colours.shape[:2]), 4)
    picture = np.repeat(np.repeat(colours, size, axis=0), size, axis=1)
    picture[::size] = picture[:, ::size] = LINE
    return picture


def discs(
    shapes: Iterable[tuple[tuple[float, float], float, Colour]], extent: float = 2.0
) -> NDArray[np.uint8]:
    """Discs ((x, y), radius, colour), later ones on top, on the plane [-extent, extent]^2, y upwards."""
    ticks = (np.arange(SIDE) + 0.5) * (2.0 * extent / SIDE) - extent
    picture = np.full((SIDE, SIDE, 3), GROUND, np.uint8)
    for (x, y), radius, colour in shapes:
        picture[(ticks[None, :] - x) ** 2 + (ticks[::-1, None] - y) ** 2 <= radius**2] = colour
    return picture

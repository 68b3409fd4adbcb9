"""Words in pictures: capital letters and numbers of 3 x 5 dots, without a font."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.meta.pictures import Colour

# Five rows from the top, an octal digit each: 4 is the left dot, 2 the middle one, 1 the right one.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 :-_"
_ROWS = """
    25755 65656 34443 65556 74647 74644 34553 55755 72227 11152 55655 44447 57755
    65555 25552 65644 25563 65655 34216 72222 55557 55552 55775 55255 55222 71247
    75557 26227 61247 61216 55711 74616 34757 71222 75757 75716 00000 02020 00700 00007
"""
_DOTS = dict(zip(_LETTERS, _ROWS.split(), strict=True))
# What stands for a character that has no dots of its own.
_UNKNOWN = "77777"


def write_words(
    picture: NDArray[np.uint8], row: int, column: int, words: str, colour: Colour, size: int = 2
) -> None:
    """Write into a picture, from this pixel on; a dot is `size` pixels. What does not fit is cut off."""
    rows = [[int(digit) for digit in _DOTS.get(letter, _UNKNOWN)] for letter in words.upper()]
    # [5, letters * 4] dots, with an empty column after each letter.
    dots = (np.array(rows).T[:, :, None] >> np.array([2, 1, 0, 3])) & 1
    mask = np.kron(dots.reshape(5, -1), np.ones((size, size), np.int64)) > 0
    place = picture[row : row + len(mask), column : column + mask.shape[1]]
    place[mask[: place.shape[0], : place.shape[1]]] = colour

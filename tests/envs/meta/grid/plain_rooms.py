"""The games of three rooms, written again one cell and one letter at a time, to compare the shards with."""

from __future__ import annotations

from typing import Any

import numpy as np

APPLE_ROOM = ["XXXXXXXXXXX", *["X.........X"] * 5, "XXXXXXXXXXX"]

KEY_ROOM = [
    "..XXXXXXX..",
    "..X.....X..",
    "..X.....X..",
    "..XX...XX..",
    "..X.....X..",
    "..X.....X..",
    "..XXXXXXX..",
]

DOOR_ROOM = [
    "...........",
    "...XXdXX...",
    "...X...X...",
    "...X...X...",
    "...X...X...",
    "...XXXXX...",
    "...........",
]

CUE_ROOM = ["...........", "....XXX....", "....X.X....", "....XXX....", *["..........."] * 3]

CHOICE_ROOM = [
    "XXXXXXXXXXX",
    "X.r..g..b.X",
    "X.........X",
    "X.........X",
    "XXXX...XXXX",
    "...X...X...",
    "...XXXXX...",
]

# The published colours, in thousandths of full light; capital letters are walls.
THOUSANDTHS = {
    ".": (800, 800, 800),
    "X": (100, 100, 100),
    "i": (1000, 1000, 1000),
    "d": (529, 808, 922),
    "o": (529, 808, 922),
    "@": (898, 584, 430),
    "a": (550, 700, 0),
    "k": (627, 321, 176),
    **dict.fromkeys("rR", (1000, 0, 0)),
    **dict.fromkeys("gG", (0, 1000, 0)),
    **dict.fromkeys("bB", (0, 0, 1000)),
}

PIXELS = {letter: [int(part * 255 / 1000) for part in colour] for letter, colour in THOUSANDTHS.items()}

WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))

PLACES = [
    (r, c)
    for r in range(7)
    for c in range(11)
    if 1 <= r <= 5 and 1 <= c <= 9 and (r + c) % 2 == 0 and (r, c) != (5, 5)
]


class PlainRooms:
    """One episode: the first room as letters, the player's start, and what is rewarded in the last room."""

    def __init__(
        self,
        first: list[str],
        start: tuple[int, int],
        last: list[str],
        last_start: tuple[int, int],
        steps: tuple[int, int, int],
    ) -> None:
        self.steps, self.last, self.last_start = steps, last, last_start
        self.time, self.key, self.done, self.wanted = 0, False, False, ""
        self.enter(first, start)

    def enter(self, letters: list[str], start: tuple[int, int]) -> None:
        self.room = {(r, c): letter for r, line in enumerate(letters) for c, letter in enumerate(line)}
        self.player = start
        self.eaten: dict[tuple[int, int], int] = {}

    def put_apples(self, bits: int) -> None:
        for number, place in enumerate(PLACES):
            if bits >> number & 1:
                self.room[place] = "a"

    def apples(self) -> int:
        return sum(1 << number for number, place in enumerate(PLACES) if self.room[place] == "a")

    def step(self, action: int) -> float:
        self.time += 1
        for place, letter in self.room.items():
            if letter == "i":
                self.room[place] = "X"
        r, c = self.player[0] + WAYS[action][0], self.player[1] + WAYS[action][1]
        if self.room.get((r, c), "X") not in "XidRGB":
            self.player = (r, c)
        reward = self.touch(self.room[self.player])
        for place, when in list(self.eaten.items()):
            if self.time > when + 20:
                self.room[place] = "a"
                del self.eaten[place]
        if self.time == self.steps[0]:
            self.enter(APPLE_ROOM, (5, 5))
        if self.time == self.steps[0] + self.steps[1]:
            opened = [line.replace("d", "o") for line in self.last]
            self.enter(opened if self.key else self.last, self.last_start)
        return reward

    def touch(self, letter: str) -> float:
        if letter == "a":
            self.room[self.player] = "."
            self.eaten[self.player] = self.time
            return 1.0
        if letter == "k":
            self.room[self.player], self.room[0, 5], self.key = ".", "i", True
        if letter in "rgb":
            for place in ((1, 2), (1, 5), (1, 8)):
                self.room[place] = "."
        if (letter == "o" and not self.done) or (letter in "rgb" and letter == self.wanted):
            self.done = True
            return 5.0
        return 0.0

    def image(self) -> np.ndarray[Any, Any]:
        r, c = self.player
        letters = [[self.room.get((r + i, c + j), ".") for j in range(-2, 3)] for i in range(-2, 3)]
        if letters[2][2] != "o":
            letters[2][2] = "@"
        return np.array([[PIXELS[letter] for letter in line] for line in letters], np.uint8)


def with_letter(letters: list[str], row: int, column: int, letter: str) -> list[str]:
    """The room with one letter in another's place."""
    line = letters[row]
    return [*letters[:row], line[:column] + letter + line[column + 1 :], *letters[row + 1 :]]

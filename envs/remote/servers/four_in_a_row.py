"""The rules of Connect4, and opponents with a hidden weakness each; without a server around them."""

from __future__ import annotations

import random

ROWS, COLUMNS = 6, 7
# The directions of a line: (rows, columns) from one stone to the next.
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
# The opponent that knows no weakness: it looks this many moves ahead.
DEPTH = 4
MINIMAX = len(DIRECTIONS)
OPPONENTS = MINIMAX + 1
US, THEM = 1, -1

# Columns from the middle outwards, where more lines pass.
_ORDER = sorted(range(COLUMNS), key=lambda column: abs(column - COLUMNS // 2))


def place(row: int, column: int) -> int:
    """The bit of a place: sets of places are numbers, with a bit for each."""
    return 1 << (row * COLUMNS + column)


def _lines() -> list[tuple[int, int]]:
    """Every four places in a row, after the number of their direction."""
    found: list[tuple[int, int]] = []
    for number, (down, right) in enumerate(DIRECTIONS):
        for row in range(ROWS):
            for column in range(COLUMNS):
                places = [(row + i * down, column + i * right) for i in range(4)]
                if all(0 <= r < ROWS and 0 <= c < COLUMNS for r, c in places):
                    found.append((number, sum(place(r, c) for r, c in places)))
    return found


LINES = _lines()
# For each place the lines through it: the number of the direction, and the other three places.
OTHERS = {
    (row, column): [(number, line - here) for number, line in LINES if line & here]
    for row in range(ROWS)
    for column in range(COLUMNS)
    for here in [place(row, column)]
}


class FourInARow:
    """Stones that fall in columns, ours and theirs."""

    def __init__(self) -> None:
        # The places of either side's stones.
        self.stones = {US: 0, THEM: 0}
        self.heights = [0] * COLUMNS

    def legal(self) -> list[int]:
        """The columns that are not full."""
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def drop(self, column: int, player: int) -> None:
        self.stones[player] |= place(self.heights[column], column)
        self.heights[column] += 1

    def take_back(self, column: int) -> None:
        self.heights[column] -= 1
        here = place(self.heights[column], column)
        for player in (US, THEM):
            self.stones[player] &= ~here

    def wins(self, column: int, player: int) -> set[int]:
        """The directions in which a stone of the player in this column would complete a line."""
        stones = self.stones[player]
        others = OTHERS[self.heights[column], column]
        return {direction for direction, places in others if stones & places == places}

    def flat(self) -> list[int]:
        """All places, row by row from below: 1 ours, -1 theirs, 0 free."""
        ours, theirs = self.stones[US], self.stones[THEM]
        return [(ours >> at & 1) - (theirs >> at & 1) for at in range(ROWS * COLUMNS)]

    def fork(self, unseen: int) -> int | None:
        """The first column where a stone of ours would leave two columns that win, of lines in any direction
        but one.
        """
        for column, places in self.threats(US).items():
            if sum(bool(directions - {unseen}) for directions in places) > 1:
                return column
        return None

    def threats(self, player: int) -> dict[int, list[set[int]]]:
        """The columns where a stone of the player would leave places that complete a line: the directions of
        the lines for each such place.
        """
        longest, found = self.longest(player), dict[int, list[set[int]]]()
        for column in self.legal():
            # One stone more makes a threat of a line of two only.
            if max(longest[column::COLUMNS]) < 2:
                continue
            self.drop(column, player)
            places = [directions for one in self.legal() if (directions := self.wins(one, player))]
            self.take_back(column)
            if places:
                found[column] = places
        return found

    def longest(self, player: int) -> list[int]:
        """[direction * 7 + column] the most stones of the player in a line that a stone in this column would
        join, of lines that hold none of the other's: 3 wins, and a column that is full has 0.
        """
        found = [0] * (len(DIRECTIONS) * COLUMNS)
        mine, theirs = self.stones[player], self.stones[-player]
        for column in self.legal():
            for direction, places in OTHERS[self.heights[column], column]:
                if not theirs & places:
                    at = direction * COLUMNS + column
                    found[at] = max(found[at], (mine & places).bit_count())
        return found


def reply(board: FourInARow, opponent: int, rng: random.Random, *, careful: bool = False) -> int:
    """The column that an opponent plays.

    Opponents 0 to 3 win if they can, else block a line of four unless it lies in the direction of their
    number, else play any column. One that is careful takes the place of a fork before, with which two columns
    would win, again but for its own direction. The last opponent looks DEPTH moves ahead.
    """
    legal = board.legal()
    if opponent == MINIMAX:
        return _best(board, rng)
    for column in legal:
        if board.wins(column, THEM):
            return column
    for column in legal:
        if board.wins(column, US) - {opponent}:
            return column
    fork = board.fork(opponent) if careful else None
    return rng.choice(legal) if fork is None else fork


def _best(board: FourInARow, rng: random.Random) -> int:
    """The column of the best value; among equal ones any of those nearest to the middle."""
    values: dict[int, float] = {}
    for column in board.legal():
        values[column] = _value_of_move(board, column, THEM, DEPTH, -float("inf"), float("inf"))
    best = max(values.values())
    return rng.choice([column for column, value in values.items() if value == best])


def _value_of_move(board: FourInARow, column: int, player: int, depth: int, low: float, high: float) -> float:
    """The value of a move for the player who makes it: a win soon is worth more than one later."""
    if board.wins(column, player):
        return 100.0 + depth
    board.drop(column, player)
    value, legal = 0.0, board.legal()
    if depth > 1 and legal:
        value = -float("inf")
        for answer in sorted(legal, key=_ORDER.index):
            found = _value_of_move(board, answer, -player, depth - 1, max(-high, value), -low)
            value = max(value, found)
            if value >= -low:  # whatever comes now, the player has a better move elsewhere
                break
        value = -value
    board.take_back(column)
    return value

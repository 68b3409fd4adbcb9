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


def _lines() -> list[tuple[int, list[tuple[int, int]]]]:
    """Every four places in a row, with the number of their direction."""
    found: list[tuple[int, list[tuple[int, int]]]] = []
    for number, (down, right) in enumerate(DIRECTIONS):
        for row in range(ROWS):
            for column in range(COLUMNS):
                places = [(row + i * down, column + i * right) for i in range(4)]
                if all(0 <= r < ROWS and 0 <= c < COLUMNS for r, c in places):
                    found.append((number, places))
    return found


LINES = _lines()
# The lines through each place.
THROUGH: dict[tuple[int, int], list[tuple[int, list[tuple[int, int]]]]] = {}
for _number, _places in LINES:
    for _place in _places:
        THROUGH.setdefault(_place, []).append((_number, _places))


class FourInARow:
    """Stones in columns, the lowest row first: 1 ours, -1 theirs, 0 free."""

    def __init__(self) -> None:
        self.cells = [[0] * COLUMNS for _ in range(ROWS)]
        self.heights = [0] * COLUMNS

    def legal(self) -> list[int]:
        """The columns that are not full."""
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def drop(self, column: int, player: int) -> None:
        self.cells[self.heights[column]][column] = player
        self.heights[column] += 1

    def take_back(self, column: int) -> None:
        self.heights[column] -= 1
        self.cells[self.heights[column]][column] = 0

    def wins(self, column: int, player: int) -> set[int]:
        """The directions in which a stone of the player in this column would complete a line."""
        row = self.heights[column]
        return {
            direction
            for direction, places in THROUGH[row, column]
            if all((r, c) == (row, column) or self.cells[r][c] == player for r, c in places)
        }

    def flat(self) -> list[int]:
        """All cells, row by row from below."""
        return [cell for row in self.cells for cell in row]

    def fork(self, unseen: int) -> int | None:
        """The first column where a stone of ours would leave two columns that win, of lines in any direction
        but one.
        """
        longest = self.longest(US)
        for column in self.legal():
            # A fork makes threes out of twos.
            lines = longest[column::COLUMNS]
            if max(lines[:unseen] + lines[unseen + 1 :]) < 2:
                continue
            self.drop(column, US)
            winning = sum(bool(self.wins(one, US) - {unseen}) for one in self.legal())
            self.take_back(column)
            if winning > 1:
                return column
        return None

    def longest(self, player: int) -> list[int]:
        """[direction * 7 + column] the most stones of the player in a line that a stone in this column would
        join, of lines that hold none of the other's: 3 wins, and a column that is full has 0.
        """
        found = [0] * (len(DIRECTIONS) * COLUMNS)
        for column in self.legal():
            for direction, places in THROUGH[self.heights[column], column]:
                stones = [self.cells[r][c] for r, c in places]
                if -player not in stones:
                    at = direction * COLUMNS + column
                    found[at] = max(found[at], stones.count(player))
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

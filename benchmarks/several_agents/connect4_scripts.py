"""Scripted players of Connect4 against an opponent with a weakness: told, found out, or forgotten."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from envs.remote.servers.four_in_a_row import (
    COLUMNS,
    DIRECTIONS,
    OTHERS,
    ROWS,
    THEM,
    US,
    FourInARow,
)

WEAKNESSES = len(DIRECTIONS)
# What a line is worth that has so many of our stones, and none of theirs.
WORTH = (0.0, 1.0, 4.0, 16.0, 64.0)


class Knows(Enum):
    """What a player knows of its opponent."""

    told = "told"
    remembers = "remembers"
    forgets = "forgets"


def board_of(cells: Sequence[float]) -> FourInARow:
    """The board that an observation shows."""
    board = FourInARow()
    for place, cell in enumerate(cells):
        if cell != 0:
            board.drop(place % COLUMNS, int(cell))
    return board


def likelihoods(before: FourInARow, column: int, *, careful: bool = True) -> NDArray[np.float64]:
    """[weaknesses] how likely each opponent, careful or not, was to play this column on that board."""
    legal = before.legal()
    if any(before.wins(one, THEM) for one in legal):
        return np.ones(WEAKNESSES)  # all of them take the first win
    ours = {one: before.wins(one, US) for one in legal}
    found = np.empty(WEAKNESSES)
    for weakness in range(WEAKNESSES):
        block = next((one for one in legal if ours[one] - {weakness}), None)
        if block is None and careful:
            block = before.fork(weakness)
        found[weakness] = 1.0 / len(legal) if block is None else float(block == column)
    return found


class ScriptedPlayer:
    """Wins if it can, else blocks, else plays for the lines that this opponent will not block.

    What it believes of the opponent is the exact posterior over the four weaknesses, given the replies of
    this game (`forgets`) or of the trial (`remembers`); where it is told, most belief is on the truth.
    Against the opponent without a weakness it believes in any of them.
    """

    def __init__(self, knows: Knows, opponent: int, seed: int) -> None:
        self._knows, self._rng = knows, random.Random(seed)
        self.belief = np.full(WEAKNESSES, 1.0 / WEAKNESSES)
        if knows is Knows.told and opponent < WEAKNESSES:
            # Lines in other directions decide between moves that are equal otherwise.
            self.belief = 0.9 * np.eye(WEAKNESSES)[opponent] + 0.1
        # The board after our last move of this game, on which the opponent replied.
        self._left: FourInARow | None = None

    def column(self, cells: Sequence[float]) -> int:
        """The move on the board of a row that is not the last of its game."""
        board = board_of(cells)
        self._learn(board)
        column = self._chosen(board)
        board.drop(column, US)
        self._left = board
        return column

    def end_of_game(self, cells: Sequence[float]) -> None:
        """The last board of a game, whose last move tells something too."""
        self._learn(board_of(cells))
        self._left = None
        if self._knows is Knows.forgets:
            self.belief = np.full(WEAKNESSES, 1.0 / WEAKNESSES)

    def _learn(self, board: FourInARow) -> None:
        """The posterior after the reply that led to this board."""
        before = self._left
        if before is None or self._knows is Knows.told:
            return
        replies = [column for column in range(COLUMNS) if board.heights[column] > before.heights[column]]
        if not replies:  # our own move has ended the game
            return
        belief = self.belief * likelihoods(before, replies[0])
        # No weakness explains a reply of the opponent that has none.
        known = belief.sum() > 0
        self.belief = belief / belief.sum() if known else np.full(WEAKNESSES, 1.0 / WEAKNESSES)

    def _chosen(self, board: FourInARow) -> int:
        legal = board.legal()
        for player in (US, THEM):
            winning = [column for column in legal if board.wins(column, player)]
            if winning:
                return winning[0]
        values = {column: self._value(board, column) for column in legal}
        best = max(values.values())
        return self._rng.choice([column for column, value in values.items() if value >= best - 1e-9])

    def _value(self, board: FourInARow, column: int) -> float:
        """What a move adds to the lines through its place, by how likely they are to be left open."""
        value = 0.0
        for direction, others in OTHERS[board.heights[column], column]:
            if not board.stones[THEM] & others:
                value += self.belief[direction] * WORTH[(board.stones[US] & others).bit_count() + 1]
        # A stone that they could win upon is worth less than any other.
        board.drop(column, US)
        lets_win = board.heights[column] < ROWS and bool(board.wins(column, THEM))
        board.take_back(column)
        return value - 1e3 * lets_win

"""Positions of Connect4 that are won in two moves by whoever knows the opponent's weakness.

    python -m envs.remote.servers.puzzles 200        search such positions anew and print them

In each, seven stones of ours and seven of theirs lie on the board, we move next, and
- nobody can complete a line at once;
- no move of ours threatens in two places, so no game is won against every opponent;
- in three directions at least there is a move after which one more stone would complete a line. An opponent
  blocks it, but for its own direction.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence

from envs.remote.servers.four_in_a_row import COLUMNS, LINES, ROWS, THEM, US, FourInARow, place

STONES = 14
# Of the four directions a position offers so many.
OFFERED = 3

# A position: its columns from left to right, each from below, x ours and o theirs. Found by `search`, seeds 0
# to 199.
_TEXT = """
oxo/ox//xxo/oox/o/xx xx/o/o/xxo/x/oo/oxox xoo/oxo/oo/xx/x/xx/o /xoxo//xoo/oo/xxo/xx oo/xox/oxx/x/oxx//oo
oxo/xo/oxox/xx/x/o/o xox///xoo/oo/oxx/xxo /oxoo/xox/xox/oxx/o/ xo/xx/o/ooxxo/xo/o/x oxo/x/o/x/oxx/oxx/oo
xoo/ox//xxo/oxx/o/xo o/xx/xoo/ox/xxoo/x/o xo/x/oox/xxo/o/oxx/o xoo/ox/ox/x/o/xx/oox xoxx/oo/o/xxxoo/xo//
o/xoo//ox/oxx/xox/xo oo/xo/oxx/xx/x/o/oox xx/o/x/xxoxo/oo/oox/ oox/x/x/xx/ox/xoo/oo xoox/oo/x/x/o/oxo/xx
ox/xoo/ox/ox/x/o/oxx /oxxoo/oxx/xoo///xox /xxo//xoxx/o/oo/oxox o/ox//xx/xxxo/o/ooox o/o/o/xxxo/xx/oo/xxo
//xoxx/x/o/ooxox/oxo o/xo/o/oxxo/xxo//oxx xx/x/o/x/oxoo/ox/oox oxo/oo/xx/xxox/o/o/x oox/xo/xx/x/oxoxo//o
x/o/oox/xox/o/xx/xoo oo/o/ox/xox/xoxx/ox/ xx/oo/oxxxo/ox/x/o/o ox//xxo/oxx/oo/oox/x ox//oox/xo/xx/xo/oox
xx/x/oo/oxox/oxo/x/o o/xox/ox/ox/x/o/ooxx oxo/oo/oxo/xx/o/x/xx o/x/xxoo/ox/xoo/xx/o ooox/x/oxx/xx//ox/oo
o/ox/o/x/oxxo/o/xoxx oo/ooxx/x/xx/x/o/oxo xoo/xx/xo/oxo/xx/o/o xx/o/o/xx/x/ooxo/xoo xx/oxo/oo/xxo/ox/x/o
o/o/x/xxoo/ox/xoo/xx xox/o/xx/x/ox/oo/oxo xoox/o/oxxo/x/o/xx/o oox/ooxo/x/x/xx/o/ox x/xxo/oo/oxo/oxx/x/o
xx/o/o/xxo/o/xox/xoo oox/xo/ox/xo/oox/xx/ xox/o/xoo/ox/oxx/x/o oo/oox/oxx/x/o/xx/ox oox/oo/xx/x/oxox/o/x
x/o/xxo/oxx/xox/oo/o xx/o/o/xxox/xo/o/xoo xx/o/x/xxo/o/ooxxo/o /oo/ooxx/x/xx/xo/oxo /xx/xo/oxoxo/x/o/oxo
o/xxo/o/x/oxx/oox/ox xoo/ox/oxx/xo/o/oxx/ oxx/x/o/xx/ox/oo/xoo x/oo/oox/oxx/x/o/oxx o/oxx/x/oxo/xo/xox/o
oo/o/x/xxo/oxx/xo/xo //xooox/xo/oxx/oxx/o xoo/oxoo/ox/xox//xx/ xxo/oo/xxo/xx/o/o/ox o/oo/ox/xoxx/oxx//xo
o/x/oxoo/ox/xoo/x/xx xo/o/x/xxo/oxx/xo/oo oox/xo/xx/xo/oox/x/o /xxo/oo/oooxx/oxx/x/ /x//xoox/oxx/o/oooxx
xx/x/oox/ox/oxoo/x/o xoo/oo/oxx/x/xx/o/ox xoo/xx/o/ooxx/xo/o/x xx/x/oox/oxo/oxo/x/o xo/xx/oo/xxo/o/xxo/o
/ox/oxxoo/xox/oo//xx //xoox/xo/oxx/oxo/xo xoo/xo/ox/x/ox/o/oxx xoox///xoxx/ox/o/xoo oxo/o/x/xx/ox/xoo/xo
xoo/oo/oxx/xxo///xox ox/o/x/oxx/o/xoox/ox x/oxxo/oo/xxo/o/xx/o /oox/oo/xx/xxoxo/o/x //x/xox/oo/oxoo/xoxx
/ooxxo/o/xx/x/o/oxxo ox/oxoox/oxo/xo/xx// /o/oxx/x/xxxo/oo/oxo xx/x/ox/x/o/oo/xooxo o/x/x/ox/ox/xoo/ooxx
xoo/ox/o/xoxx/xoox// oxo/oo/xx/x/x/ox/oxo xo/oxo//xxo/oxx/o/xo xo/ox/oox/ox/x/oxx/o oox/oo/xxoxo/x/o/xx/
o/x/oxx/oxx/oo/x/oox x/x/ox/oooxo/oo/x/xx /xxo//xo/ooxoo/oxx/x /oox/xo/xx/xo/oox/ox x/o/xx/xxxo/oo/oxo/o
oo/xx//ox/oox/xox/ox /o/o/xxoo/xxox/oo/xx x///xx/o/oxoxo/ooxox oxo/o/x/oxx/o/xoox/x xoo/oox/x/xx/x/o/oxo
//o/xxxoo/xoxx/xo/oo oo/xoxo/oxx/x/ox/o/x /ox/oo/xoxx/o/xx/xoo oox/oo/xxo/xx/x/o/ox ooxx//ox/xox/oxo/xo/
oox/o/x/xx/oxx/xo/oo /xo/xo/ooxx/oxxoo//x o/ox/x/ox/ooxx/xo/ox x/xx/xo/oxo/o/xxoo/o /ox/ooxx/xox/ox/o/xo
oo/oxx/oxx/x/o/o/xxo xox/o/xox/oxo/xx/o/o oxx/oo/x/x/ox/ox/xoo xoo/oo/xx/x/oxox/x/o xx/o/xox/ox/ox/xoo/o
xx/ox/x/x/o/ooxo/xoo xo/xx/oo/oxo/x/xxo/o oo/oxx/oxx/x/o/xo/xo oo/xo/oxx/xx/x/o/oox oxoxo/oo/o/x/xx/o/xx
oo/xoox/o/oxx/xx//ox xo/o/ooxx/oxo/x/ox/x /xxo/oox/oxo//xoo/xx xoo/ox/xo/xxo/o/o/xx xo/oox/xo/xx/x/oxo/o
/oxoo/xox/oxo/x/xx/o xx/x/oo/oxox/o/xxo/o ox/o/o/xxo/ooxx/o/xx ooxx/oxox/oo/x/xox// x/oxo/x/oxx/oo/xxo/o
xx/oxo/xo/xxo/ox/o/o oox/o/ox/x/xx/oo/xox oxx/o/o/x/oxx/oxx/oo oxx//ox/xox/oxo/x/oo o/x/x/xxoo/oxx/oo/xo
ox/oo/ooxx/xx/xx/o/o oo/ooox/x/oxx/xx//ox /xx/oox/oox/xxo//oxo x/o/xxo/oxx/oox/oo/x o/o/oxox/xxo/oo/xx/x
xx/o/ox/x/o/xoxo/oxo xxo/ox/oo/oxo/x/xx/o x/oxxoo/ooxx/xo///xo x/o/xo/ooxx/o/xxoo/x xo/xoo/ox/ox/xoo//xx
oxo/x/o/oxo/xo/ox/xx xx/o/x/xxoo/oo/xoo/x //xoox/xxo/oxx/ox/oo oxo///x/xxxoo/oxx/oo oxo/xx/o/x/x/oox/oox
o/x/oxox/x/xx/oo/oxo xxox///xoo/oo/xx/xoo xox/o/o/xx/xx/oo/oxo o/xxo//xxo/oxx/o/xoo oxo/x/xx/x/ox/oo/oxo
oxo/oo/xx/x/oxox/o/x ox/oox/oxx/x/oxo/x/o oxx/x/x/oxox/oo/o/xo xx/x/oox/xxo/oxo/o/o oxxo/oooxo/o/xx/xx//
ox/xo/xoo/ox/oxx/x/o /oxox/ox/xoox/oxx/o/ x/oxoo/x/xx/oo/xoo/x oxo//xxo/oxx/x/xo/oo xo/o/x/oxx/xxxo/oo/o
oo/x/o/oxx/xox/ox/ox //xox/xxoo/oxx/oo/xo /xx//xoo/oo/xx/xooox oooxo//xox/ox/xx/x/o oxo/oo/oxo/x/ox/x/xx
xx//oxo/xo/ox/xo/xoo ox/oox/oxx/x/o/xx/oo o/o/xx/ox/xoxx/oo/ox oxo/o/ooxx/xooxx//x/ /xxo/ox/ox/xoo/o/oxx
xxo/x/oo/oxox/o/xx/o xo/xx/oxxo/ox//xoo/o oox/ox/oxo/x/o/oxx/x xoxo/o/ox/xoxx//xoo/ xo/ox/xo/oxo/o/oxx/x
xoo/xo/ox/x/xx/o/oxo ooxx/o/oxx/xxo//ox/o /oxo/xoxx/oxo//xoo/x ox/oo/xoxx/ox/x/o/ox o/o/o/xxo/oxx/xo/xox
xo/xo/o/oxx/xxo//oxo x/oox/xo/oxoo/x/xx/o o/xx/oox/xox/oxoo//x xoxx/o/oxo/xxoo//xo/ o/x/xx/ox/xoo/x/ooxo
"""
POSITIONS: Sequence[str] = _TEXT.split()


def puzzle(rng: random.Random) -> FourInARow:
    """Any of the positions, or its mirror image."""
    columns = rng.choice(POSITIONS).split("/")
    return _board(columns if rng.random() < 0.5 else columns[::-1])


def _board(columns: list[str]) -> FourInARow:
    board = FourInARow()
    for column, stones in enumerate(columns):
        for stone in stones:
            board.drop(column, US if stone == "x" else THEM)
    return board


def text_of(board: FourInARow) -> str:
    """A board as one of POSITIONS."""
    stones = board.flat()
    columns = (
        "".join("x" if stones[row * COLUMNS + column] == US else "o" for row in range(board.heights[column]))
        for column in range(COLUMNS)
    )
    return "/".join(columns)


def flaws(board: FourInARow) -> int:
    """What keeps a position from being a puzzle: 0 for one that is."""
    # A line that is there already, or that one stone completes, decides the game.
    complete = any(stones & line == line for stones in board.stones.values() for _, line in LINES)
    if complete or any(board.wins(column, player) for column in board.legal() for player in (US, THEM)):
        return 20
    offered, forks = set[int](), 0
    for places in board.threats(US).values():
        if sum(len(directions) for directions in places) > 1:
            forks += 1
        else:
            offered.update(*places)
    return max(0, OFFERED - len(offered)) + 2 * forks


def search(seed: int) -> FourInARow:
    """A puzzle: stones fall at random, and two of different colours change places where that has fewer flaws
    (and now and then where not), until none is left; after 400 changes it begins anew.
    """
    rng = random.Random(seed)
    while True:
        board = FourInARow()
        stones = [US, THEM] * (STONES // 2)
        rng.shuffle(stones)
        for stone in stones:
            # The top row stays free.
            board.drop(rng.choice([one for one in range(COLUMNS) if board.heights[one] < ROWS - 1]), stone)
        places = [place(row, column) for column in range(COLUMNS) for row in range(board.heights[column])]
        left = flaws(board)
        for _ in range(400):
            if left == 0:
                return board
            first, second = rng.sample(places, 2)
            _swap(board, first, second)
            now = flaws(board)
            if now <= left or rng.random() < math.exp((left - now) / 0.3):
                left = now
            else:
                _swap(board, first, second)


def _swap(board: FourInARow, first: int, second: int) -> None:
    """Let the stones in two places change places."""
    if bool(board.stones[US] & first) != bool(board.stones[US] & second):
        for player in (US, THEM):
            board.stones[player] ^= first | second


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        sys.stdout.write(text_of(search(number)) + "\n")
        sys.stdout.flush()

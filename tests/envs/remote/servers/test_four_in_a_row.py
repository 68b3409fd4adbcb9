"""Rules and opponents of Connect4: weaknesses are what they are said to be, and minimax sees four moves."""

from __future__ import annotations

import random

import pytest

from envs.remote.servers.four_in_a_row import DIRECTIONS, LINES, MINIMAX, THEM, US, FourInARow, reply


def board_of(*rows: str) -> FourInARow:
    """A board from its rows, the highest first: x ours, o theirs, . free."""
    board = FourInARow()
    for height, row in enumerate(reversed(rows)):
        for column, stone in enumerate(row):
            if stone != ".":
                assert board.heights[column] == height
                board.drop(column, US if stone == "x" else THEM)
    return board


# A move of ours in THREAT[d] would complete a line of direction d, in no other column and direction.
THREATS = [
    (board_of("xxx...."), 3),
    (board_of("x......", "x......", "x......"), 0),
    (board_of("..xo...", ".xoo...", "xoox..."), 3),
    (board_of("...ox..", "...oox.", "...xoox"), 3),
]


def test_there_are_69_lines() -> None:
    assert len(LINES) == 69 and {direction for direction, _ in LINES} == set(range(len(DIRECTIONS)))


@pytest.mark.parametrize("direction", range(4))
def test_an_opponent_blocks_every_direction_but_its_own(direction: int) -> None:
    board, column = THREATS[direction]
    assert board.wins(column, US) == {direction}
    for opponent in range(4):
        replies = {reply(board, opponent, random.Random(seed)) for seed in range(30)}
        assert (replies == {column}) == (opponent != direction), f"opponent {opponent}: {replies}"


@pytest.mark.parametrize("opponent", range(5))
def test_every_opponent_takes_a_win(opponent: int) -> None:
    board = board_of("ooo.xxx")
    assert {reply(board, opponent, random.Random(seed)) for seed in range(10)} == {3}


def test_minimax_blocks_everything_and_sees_a_fork_before_it_is_one() -> None:
    for board, column in THREATS:
        if not any(board.wins(one, THEM) for one in board.legal()):
            assert reply(board, MINIMAX, random.Random(0)) == column
    # Two of ours in the middle with free places on both sides: three would be open at both ends.
    board = board_of("..xx...")
    assert reply(board, MINIMAX, random.Random(0)) in (1, 4)


def test_looking_ahead_leaves_the_board_as_it_was() -> None:
    board = board_of(".o.....", ".xxo...")
    before = board.flat(), list(board.heights)
    reply(board, MINIMAX, random.Random(0))
    assert (board.flat(), board.heights) == before


def test_minimax_wins_most_of_its_games_against_chance() -> None:
    assert [winner_of(seed) for seed in range(5)].count(THEM) >= 4


def winner_of(seed: int) -> int:
    """Who wins a game between chance, which begins, and minimax; 0 for nobody."""
    board, rng, player = FourInARow(), random.Random(seed), US
    while board.legal():
        column = rng.choice(board.legal()) if player == US else reply(board, MINIMAX, rng)
        if board.wins(column, player):
            return player
        board.drop(column, player)
        player = -player
    return 0


def test_the_longest_line_that_a_stone_would_join_counts_open_lines_only() -> None:
    board = board_of("o......", "xxx.o..")
    across, up = board.longest(US)[:7], board.longest(US)[7:14]
    # Column 3 joins the three of the lowest row, but not with the stone of theirs in column 4.
    assert across[3] == 3 and across[5] == 0
    # The stones of columns 1 and 2 are below free places; column 0 is theirs on top.
    assert up == [0, 1, 1, 0, 0, 0, 0]
    assert board.longest(THEM)[7 + 4] == 1
    wins = {column for column in board.legal() if board.wins(column, US)}
    assert wins == {at % 7 for at, stones in enumerate(board.longest(US)) if stones == 3}


def test_a_full_column_joins_nothing() -> None:
    board = board_of(*["x......", "o......"] * 3)
    assert [stones for at, stones in enumerate(board.longest(US)) if at % 7 == 0] == [0] * 4

"""Puzzles of Connect4: nothing is decided in them, and three directions at least can be tried."""

from __future__ import annotations

import random

import pytest

from envs.remote.servers import puzzles
from envs.remote.servers.four_in_a_row import DIRECTIONS, THEM, US, reply
from tests.envs.remote.servers.test_four_in_a_row import board_of


def test_every_position_is_a_puzzle_with_as_many_stones_of_each_side() -> None:
    assert len(puzzles.POSITIONS) == 200
    for seed in range(400):
        board = puzzles.puzzle(random.Random(seed))
        stones = board.flat()
        assert stones.count(US) == stones.count(THEM) == puzzles.STONES // 2
        assert puzzles.flaws(board) == 0


def test_the_positions_are_those_that_the_search_finds() -> None:
    for seed in range(2):
        assert puzzles.text_of(puzzles.search(seed)) == puzzles.POSITIONS[seed]


def test_mirror_images_are_played_too() -> None:
    rng = random.Random(0)
    played = {puzzles.text_of(puzzles.puzzle(rng)) for _ in range(4000)}
    assert len(played) > 1.9 * len(set(puzzles.POSITIONS))


def test_a_threat_is_blocked_by_all_but_the_opponent_of_its_direction() -> None:
    board = puzzles.puzzle(random.Random(3))
    tried: set[int] = set()
    for column in board.legal():
        board.drop(column, US)
        winning = {one: board.wins(one, US) for one in board.legal() if board.wins(one, US)}
        for place, directions in winning.items():
            tried |= directions
            for opponent in range(len(DIRECTIONS)):
                if directions != {opponent} and not any(board.wins(one, THEM) for one in board.legal()):
                    assert reply(board, opponent, random.Random(0), careful=True) == place
        board.take_back(column)
    assert len(tried) >= puzzles.OFFERED


@pytest.mark.parametrize(
    "board",
    [
        board_of("xxx...."),  # we can win at once
        board_of("ooo...."),  # they can
        board_of("xxxx..."),  # we have won
        board_of("..xx..."),  # a stone more threatens on both sides
        board_of("xx....."),  # one direction only
    ],
)
def test_what_is_no_puzzle_has_flaws(board: puzzles.FourInARow) -> None:
    assert puzzles.flaws(board) > 0

"""The scripts of GridWorldMultiAgent: what searches reach, and what partners do."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.agents.grid_board import Board, GridRules
from envs.meta.agents.grid_scripts import Partner, partner_actions, reachable, watching_actions
from tests.envs.meta.agents.searching import searched

EVERY = slice(None)


@pytest.mark.parametrize(
    ("horizon", "first", "second"), [(10, 2.22, 3.18), (12, 3.13, 4.18), (15, 4.57, 5.68), (20, 7.05, 8.18)]
)
def test_to_remember_is_worth_a_third_of_the_return(horizon: int, first: float, second: float) -> None:
    assert searched(horizon, shared=True, remembers=True) == pytest.approx([first, second], abs=0.006)
    assert searched(horizon, shared=True, remembers=False) == pytest.approx([first, first], abs=0.006)


def test_without_being_told_much_of_it_is_lost() -> None:
    assert searched(12, shared=False, remembers=True) == pytest.approx([2.52, 3.05], abs=0.006)


def board_of(num: int) -> Board:
    board = Board(num, GridRules())
    zeros = np.zeros(num, np.uint64)
    board.reset(np.arange(num), np.tile([4, 4], (num, 1)), zeros, zeros)
    return board


def test_a_watcher_keeps_its_distance_and_gives_way_to_no_wall_or_agent() -> None:
    board = board_of(3)
    board.agents[:, 0] = board.cells_of(np.array([(4, 1), (4, 2), (4, 3)]))
    board.agents[:, 1] = board.cells_of(np.array([(8, 8), (3, 2), (5, 2)]))
    actions = watching_actions(board, EVERY, 0, board.target)
    # It comes nearer; it stays at the edge of its view; and one that is too close gets away.
    after = reachable(board, EVERY, 0)[np.arange(3), actions]
    assert board.distance(after, board.target).tolist() == [2, 2, 2]
    blocked = reachable(board, EVERY, 0)[1]
    assert (blocked == board.nowhere).tolist() == [False, False, True, False, False], "an agent is in the way"


def test_partners_do_what_their_type_says() -> None:
    board = board_of(4)
    types = np.arange(4)
    seeds = np.arange(4).astype(np.uint64)
    places: list[list[int]] = []
    for _ in range(12):
        actions = partner_actions(board, EVERY, 1, types, seeds)
        board.turn(EVERY, 1, actions)
        board.end_cycle(EVERY)
        places.append(board.agents[:, 1].tolist())
        if board.sees(EVERY)[Partner.scout, 1]:
            assert board.distance(board.agents[:1, 1], board.target[:1]) == [2], "it stays where it sees it"
    scouted, swept, idle, wandered = (list(column) for column in zip(*places, strict=True))
    assert set(idle) == {int(board.starts[1])}
    assert len(set(swept[6:])) > 3, "a sweeper goes on"
    assert scouted[-1] == scouted[-2] and wandered != swept


def test_a_scout_follows_what_it_is_told() -> None:
    board = board_of(2)
    board.shared[1] = board.cells_of(np.array([8, 2]))
    types, seeds = np.array([Partner.scout, Partner.scout]), np.zeros(2, np.uint64)
    actions = partner_actions(board, EVERY, 1, types, seeds)
    assert actions.tolist() == [2, 3], "to the middle of its quarter, or down to the target"

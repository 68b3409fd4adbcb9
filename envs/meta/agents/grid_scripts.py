"""Scripts that play GridWorldMultiAgent: the oracle's move, a search, and the partners of mode=ego."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from envs.meta.agents.grid_board import CLOSE, MOVES, SIGHT, STAY, Board, Boards, Cells
from utils.seeding import episode_seeds, uniforms


class Partner(IntEnum):
    """Who plays the other seats; in mode=ego one of these numbers is part of the task.

    A scout searches, and stays where it sees the target; a sweeper searches and never stops; an idle one
    stays where it is; a wanderer moves at random.
    """

    scout = 0
    sweeper = 1
    idle = 2
    wanderer = 3


def partner_actions(
    board: Board, at: Boards, seat: int, partners: NDArray[np.int64], seeds: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """[n] what these partners do in this seat, in this cycle; wanderers draw from the seeds of episodes."""
    search = search_actions(board, at, seat)
    # A scout knows what it sees now, and what it was told.
    known = np.where(board.sees(at)[:, seat], board.target[at], board.shared[at])
    scout = np.where(known == board.nowhere, search, watching_actions(board, at, seat, known))
    draws = uniforms(episode_seeds(seeds, (board.rules.agents + 1) * board.time[at] + seat), 1)[:, 0]
    wanderer = np.floor(len(MOVES) * draws).astype(np.int64)
    return np.choose(partners, [scout, search, np.full_like(search, STAY), wanderer])


def search_actions(board: Board, at: Boards, seat: int) -> NDArray[np.int64]:
    """[n] moves along the middles of the four quarters of the board, beginning with the seat's own."""
    low = board.rules.size // 4
    high = board.rules.size - 1 - low
    ring = board.cells_of(np.array([(low, low), (high, low), (high, high), (low, high)]))
    # It goes on to the next quarter after as many cycles as it takes to cross half of the board.
    leg = board.time[at] // (board.rules.size // 2)
    goal = ring[(leg + (0, 2, 3, 1)[seat]) % 4]
    cells = reachable(board, at, seat)
    return (_steps(board, cells, goal) + _NEVER * (cells == board.nowhere)).argmin(1)


def watching_actions(board: Board, at: Boards, seat: int, target: Cells) -> NDArray[np.int64]:
    """[n] the best move for who knows the cell of the target: to the edge of its view, and never closer."""
    cells = reachable(board, at, seat)
    distance = board.distance(cells, target[:, None])
    # In this order: not close, then as near to the edge of the view as can be, then with few steps to go.
    cost = 10_000 * (distance <= CLOSE) + 100 * np.abs(distance - SIGHT) + _steps(board, cells, target)
    return (cost + _NEVER * (cells == board.nowhere)).argmin(1)


# More than any other cost.
_NEVER = 10**6


def reachable(board: Board, at: Boards, seat: int) -> Cells:
    """[n, 5] the cell that each action leads to, or nowhere where it is stopped; to stay is possible."""
    agents = board.agents[at]
    # A dead agent has no moves; it is looked at as if it were in the first corner.
    now = np.where(agents[:, seat] == board.nowhere, board.starts[0], agents[:, seat])
    cells = now[:, None] + board.moves
    stopped = board.blocked(at, cells)
    for other in range(board.rules.agents):
        if other != seat:
            stopped |= cells == agents[:, other, None]
    stopped[:, STAY] = False
    return np.where(stopped, board.nowhere, cells)


def _steps(board: Board, cells: Cells, goal: Cells) -> NDArray[np.int64]:
    """[n, 5] the steps from these cells [n, 5] to a goal [n] on an empty board."""
    x, y = board.x.take(goal)[:, None], board.y.take(goal)[:, None]
    return np.abs(board.x.take(cells) - x) + np.abs(board.y.take(cells) - y)

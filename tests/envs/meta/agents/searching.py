"""Scripted searches of GridWorldMultiAgent over all homes: what is reached with and without a memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.meta.agents.grid_board import Board
from envs.meta.agents.grid_scripts import search_actions, watching_actions
from envs.meta.agents.grid_world_multi_agent import GridWorldMultiAgent, GridWorldMultiAgentConfig


def searched(horizon: int, *, shared: bool, remembers: bool) -> list[float]:
    """The mean returns of a team in two episodes; every agent goes to where it knows the target to be."""
    family = GridWorldMultiAgent(GridWorldMultiAgentConfig(max_episode_steps=horizon))
    homes = np.unique(family.sample_tasks(np.random.default_rng(0), 63, "train"), axis=0)
    board, every, at = Board(len(homes), family.rules), slice(None), np.arange(len(homes))
    known = np.full((len(homes), 2), board.nowhere)
    returns: list[float] = []
    for _ in range(2):
        family.set_task(board, at, homes, np.zeros(len(homes), np.uint64))
        if not remembers:
            known[:] = board.nowhere
        total = np.zeros(len(homes))
        for _ in range(horizon):
            seen = np.where(board.sees(every), board.target[:, None], board.nowhere)
            known = np.minimum(known, seen)
            if shared:
                known = np.minimum(known, board.shared[:, None])
            for seat in (0, 1):
                total += 0.5 * board.turn(every, seat, _action(board, seat, known[:, seat]))
            board.end_cycle(every)
        returns.append(float(total.mean()))
    return returns


def _action(board: Board, seat: int, known: NDArray[np.int64]) -> NDArray[np.int64]:
    every = slice(None)
    watching = watching_actions(board, every, seat, known)
    return np.where(known == board.nowhere, search_actions(board, every, seat), watching)

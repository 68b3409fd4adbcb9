"""The board of GridWorldMultiAgent against the same rules in plain Python, cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.agents.grid_board import Board, GridRules
from tests.envs.meta.agents.plain_grid import PlainGrid

GAMES = {
    "plain": GridRules(),
    "three": GridRules(agents=3, together=True),
    "walls": GridRules(size=8, obstacles=5),
    "chase": GridRules(target_speed=0.8, agents=4, size=12),
    "deadly": GridRules(size=7, death_on_sight=True, target_speed=0.5, obstacles=2),
}


@pytest.mark.parametrize("name", GAMES)
def test_the_board_follows_the_rules(name: str) -> None:
    rules, num, rng = GAMES[name], 12, np.random.default_rng(len(name))
    board, every = Board(num, rules), slice(None)
    homes = rng.integers(3, rules.size - 3, size=(num, 2))
    layouts, seeds = (rng.integers(2**63, size=num).astype(np.uint64) for _ in range(2))
    board.reset(np.arange(num), homes, layouts, seeds)
    plain = [
        PlainGrid(rules, (int(home[0]), int(home[1])), int(layout), int(seed))
        for home, layout, seed in zip(homes, layouts, seeds, strict=True)
    ]
    for _ in range(40):
        seen = board.observe(every)
        for number, game in enumerate(plain):
            for agent in range(rules.agents):
                np.testing.assert_array_equal(
                    seen[number, agent],
                    np.array(game.seen_by(agent), np.float32),
                    err_msg=f"{number}, {agent}",
                )
        for agent in range(rules.agents):
            actions = rng.integers(5, size=num)
            rewards = board.turn(every, agent, actions)
            expected = [game.turn(agent, int(action)) for game, action in zip(plain, actions, strict=True)]
            assert rewards.tolist() == expected
        board.end_cycle(every)
        for game in plain:
            game.end_cycle()
    dead = (board.agents == board.nowhere).sum()
    assert dead == sum(rules.agents - len(game.agents) for game in plain)
    assert (dead > 0) == rules.death_on_sight
    if rules.target_speed:
        assert any(game.target != game.home for game in plain)


def test_looking_changes_nothing_and_boards_do_not_see_each_other() -> None:
    rules, at = GAMES["deadly"], np.arange(3)
    board, alone = Board(3, rules), Board(1, rules)
    keys = np.array([5, 6, 7], np.uint64)
    board.reset(at, np.array([[3, 3], [4, 3], [3, 4]]), keys, keys)
    alone.reset(at[:1], np.array([[4, 3]]), keys[1:2], keys[1:2])
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.integers(5, size=(2, 3))
        for seat in (0, 1):
            board.observe(np.array([0, 2]))
            board.turn(at, seat, actions[seat])
            alone.turn(slice(None), seat, actions[seat, 1:2])
        board.end_cycle(at)
        alone.end_cycle(slice(None))
        np.testing.assert_array_equal(board.observe(at)[1], alone.observe(slice(None))[0])


def test_views_never_leave_the_board() -> None:
    """A view from a corner: the two outer rows and columns are outside."""
    board = Board(1, GridRules())
    board.reset(np.array([0]), np.array([[4, 4]]), np.zeros(1, np.uint64), np.zeros(1, np.uint64))
    outside = board.observe(slice(None))[0, 0, 2:27].reshape(5, 5)
    assert outside[:2].all() and outside[:, :2].all() and not outside[2:, 2:].any()

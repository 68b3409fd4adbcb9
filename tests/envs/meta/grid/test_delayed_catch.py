"""DelayedCatch against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envs.meta.make_env import make_family
from tests.envs.meta.played import Played, random_actions, returns_of


def board_of(ball: tuple[int, int], paddle: int) -> list[float]:
    """The flattened board with the ball at (row, column) and the paddle at the bottom."""
    board = [[0.0] * 7 for _ in range(7)]
    board[ball[0]][ball[1]] = -1.0
    board[6][paddle] = 1.0
    return [cell for row in board for cell in row]


def columns(obs: np.ndarray) -> tuple[int, int]:
    """The columns of ball and paddle at the start of a run, when the ball is on top."""
    board = obs.reshape(7, 7)
    assert np.count_nonzero(board) == 2 and board[0].min() == -1.0 and board[6].max() == 1.0
    return int(board[0].argmin()), int(board[6].argmax())


@pytest.mark.parametrize("runs", [1, 3, 40])
@pytest.mark.parametrize("play", ["oracle", "random", "left"])
def test_an_episode_is_what_the_definition_says(runs: int, play: str):
    family = make_family("DelayedCatch", runs=runs)
    horizon = 7 * (runs - 1) + 6
    assert family.config.max_episode_steps == horizon
    rng = np.random.default_rng(runs)
    played = Played(family, 1)
    rows = played.reset([0], [[0.0]], [runs])
    assert isinstance(rows.obs, np.ndarray)
    (ball, paddle), row, caught = columns(rows.obs[0]), 0, 0
    for time in range(1, horizon + 1):
        action = 0
        if play != "left":
            action = int(
                (
                    family.oracle_action(rows.obs, rows.task, rows.info)
                    if play == "oracle"
                    else random_actions(rng, family, 1)
                )[0]
            )
        played.step([0], [action])
        if row == 6:
            ball, paddle = columns(rows.obs[0])
            row = 0
        else:
            row += 1
            paddle = max(0, min(6, paddle + (-1, 0, 1)[action]))
            caught += row == 6 and ball == paddle
        assert rows.obs[0].tolist() == board_of((row, ball), paddle)
        assert rows.terminated[0] == (time == horizon)
        assert rows.reward[0] == (caught if time == horizon else 0)
        assert rows.info[0].tolist() == [caught, caught == runs]
    assert caught == runs if play == "oracle" else caught < runs or runs == 1


def test_forty_runs_take_279_steps_and_a_limit_of_ones_own_is_kept():
    assert make_family("DelayedCatch").config.max_episode_steps == 279
    assert make_family("DelayedCatch", max_episode_steps=50).config.max_episode_steps == 50


def test_balls_and_paddles_start_uniform_in_their_columns_and_independent():
    count = 6000
    played = Played(make_family("DelayedCatch", runs=2), count)
    rows = played.reset(np.arange(count), np.zeros((count, 1)), np.arange(count))
    assert isinstance(rows.obs, np.ndarray)
    starts = [[columns(obs) for obs in rows.obs]]
    for _ in range(7):
        played.step(np.arange(count), np.ones(count))
    starts.append([columns(obs) for obs in rows.obs])
    drawn = np.array(starts).transpose(1, 0, 2).reshape(count, 4)  # ball, paddle, next ball, next paddle
    for column, (low, high) in enumerate([(0, 5), (1, 4), (0, 5), (1, 4)]):
        values, counts = np.unique(drawn[:, column], return_counts=True)
        assert values.tolist() == list(range(low, high + 1))
        share = 1 / len(values)
        assert np.abs(counts / count - share).max() < 4.5 * math.sqrt(share * (1 - share) / count)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.06


def test_the_oracle_catches_every_ball():
    family = make_family("DelayedCatch", runs=20)
    returns = returns_of(family, np.zeros((500, 1)), oracle=True)
    assert (returns == 20).all()


@pytest.mark.parametrize("runs", [5, 40])
def test_the_returns_of_oracle_and_random_are_the_reported_ones(runs: int):
    family = make_family("DelayedCatch", runs=runs)
    reference = family.spec.reference
    assert reference is not None and reference.oracle == runs
    returns = returns_of(family, np.zeros((3000, 1)), oracle=False, seed=1)
    assert returns.mean() == pytest.approx(reference.random, abs=4 * returns.std() / math.sqrt(3000) + 0.01)


def test_other_settings_have_no_reference():
    assert make_family("DelayedCatch", runs=7).spec.reference is None
    assert make_family("DelayedCatch", max_episode_steps=100).spec.reference is None

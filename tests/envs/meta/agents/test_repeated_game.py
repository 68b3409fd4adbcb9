"""RepeatedGame: by exact dynamic programming over what can be known, and its rules by other code."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from envs.meta.agents.repeated_game import RepeatedGame, RepeatedGameConfig
from tests.envs.meta.played import Played, returns_of
from utils.options import OptionError

H, COOPERATE, DEFECT = 10, 0, 1
PAYOFF = {(0, 0): -1.0, (0, 1): -3.0, (1, 0): 0.0, (1, 1): -2.0}
EVERYBODY = (0, 1, 2, 3)
# The actions of the agent in the rounds of an episode so far.
History = tuple[int, ...]


def reply(opponent: int, history: History) -> int:
    """What each opponent does next, by its description."""
    return {0: COOPERATE, 1: DEFECT, 2: history[-1] if history else COOPERATE, 3: max(history, default=0)}[
        opponent
    ]


def situation(history: History) -> tuple[int, int, int]:
    """All of an episode that can matter to what follows: its length, the last action, any defection."""
    return len(history), history[-1] if history else 0, max(history, default=0)


@cache
def best(possible: tuple[int, ...], history: History, episodes_left: int) -> tuple[float, ...]:
    """The best returns of these opponents together, by episode, for one who knows of no more."""
    if len(history) == H:
        # The memory keeps who is possible; the next episode begins anew.
        return best(possible, (), episodes_left - 1) if episodes_left > 1 else ()
    length, last, defected = situation(history)
    shortest = (0,) * (length - 2) + (defected, last) if length > 1 else history
    if shortest != history:
        return best(possible, shortest, episodes_left)
    answers = {opponent: reply(opponent, history) for opponent in possible}
    options = []
    for mine in (COOPERATE, DEFECT):
        total = np.zeros(episodes_left)
        # Opponents that answer alike cannot be told apart yet.
        for theirs in set(answers.values()):
            group = tuple(opponent for opponent in possible if answers[opponent] == theirs)
            rest = best(group, (*history, mine), episodes_left)
            total[0] += len(group) * PAYOFF[mine, theirs]
            total[episodes_left - len(rest) :] += rest
        options.append(tuple(total.tolist()))
    return max(options, key=sum)


def of_one(returns: tuple[float, ...], opponents: int = 4) -> list[float]:
    return [value / opponents for value in returns]


def test_paying_in_the_first_episode_for_knowledge_is_best() -> None:
    assert of_one(best(EVERYBODY, (), 2)) == [-12.25, -9.5]
    assert of_one(best(EVERYBODY, (), 1)) == [-12.0], "one who forgets has this in both episodes"
    assert [best((opponent,), (), 1)[0] for opponent in EVERYBODY] == [0.0, -20.0, -9.0, -9.0]


def test_the_oracle_is_the_best_reply_to_each_opponent() -> None:
    tasks = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert returns_of(RepeatedGame(RepeatedGameConfig()), tasks, oracle=True).tolist() == [0, -20, -9, -9]


def test_another_game_has_another_best_reply() -> None:
    """A stag hunt: with one who cooperates it is best to do so, too, even in the last round."""
    family = RepeatedGame(RepeatedGameConfig(payoffs=[4.0, 1.0, 3.0, 2.0], max_episode_steps=3))
    tasks = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert returns_of(family, tasks, oracle=True).tolist() == [12, 6, 12, 12]


@pytest.mark.parametrize("opponent", EVERYBODY)
def test_every_opponent_does_what_it_is_described_to_do(opponent: int) -> None:
    played, rng = Played(RepeatedGame(RepeatedGameConfig()), 1), np.random.default_rng(opponent)
    for episode in range(20):
        rows = played.reset([0], [[opponent]], [episode])
        assert isinstance(rows.obs, np.ndarray) and not rows.obs.any()
        history: History = ()
        cooperated = 0
        for mine in rng.integers(2, size=H).tolist():
            theirs = reply(opponent, history)
            cooperated += theirs == COOPERATE
            rows = played.step([0], [mine])
            assert isinstance(rows.obs, np.ndarray)
            history = (*history, mine)
            assert rows.reward[0] == PAYOFF[mine, theirs]
            assert rows.info[0].tolist() == [PAYOFF[theirs, mine], cooperated]
            assert rows.obs[0, :4].tolist() == [float(2 * mine + theirs == i) for i in range(4)]
            assert rows.obs[0, 4] == np.float32(len(history) / H)


@pytest.mark.parametrize(("mine", "expected"), [(COOPERATE, -15.0), (DEFECT, -14.0)])
def test_what_constant_play_gives_on_average(mine: int, expected: float) -> None:
    played, total = Played(RepeatedGame(RepeatedGameConfig()), 4), 0.0
    played.reset(np.arange(4), [[0.0], [1.0], [2.0], [3.0]], np.arange(4))
    for _ in range(H):
        total += played.step(np.arange(4), [mine] * 4).reward.mean()
    assert total == expected


def test_a_game_needs_four_payoffs() -> None:
    with pytest.raises(OptionError, match="payoffs has 3 numbers, and there are 4 outcomes"):
        RepeatedGame(RepeatedGameConfig(payoffs=[1.0, 2.0, 3.0]))

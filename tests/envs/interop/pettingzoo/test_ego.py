"""EgoWrapper: rows of the agent's own turns, partners as tasks, and its way into the family Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.interop.pettingzoo import EgoWrapper, FlattenMultiAgentWrapper
from envs.meta.third_party.gymnasium_family import GymnasiumFamily
from tests.envs.interop.pettingzoo.rounds import Rounds
from tests.envs.interop.pettingzoo.test_game import Turns
from tests.envs.meta.played import Played


def stays(obs: Any, space: Any, rng: np.random.Generator) -> int:
    return 0


def leaves(obs: Any, space: Any, rng: np.random.Generator) -> int:
    return 2


def test_a_row_has_what_was_paid_since_the_own_turn_before() -> None:
    # b is on turn second, and is paid 5 in the turns of a and 1 in its own.
    env = EgoWrapper(Turns(in_cycles=False), "b", [stays])
    obs, _ = env.reset(seed=0)
    assert obs == "b after 1"
    obs, reward, terminated, truncated, _ = env.step(0)
    assert (obs, reward, terminated, truncated) == ("b after 3", 6, False, False)
    obs, reward, terminated, *_ = env.step(2)
    assert terminated and reward == 1


def test_the_partner_is_the_task() -> None:
    env = EgoWrapper(Rounds(), "a", [stays, leaves])
    for task, left in ((0, 3), (1, 1)):
        env.reset(seed=0, options={"task": task})
        env.step(1)
        obs, *_ = env.step(1)
        assert obs[1] == left
    assert set(env.sample_tasks(20)) == {0, 1}
    with pytest.raises(ValueError, match="A task is the number of a partner, 0 to 1, not 2"):
        env.reset(options={"task": 2})
    with pytest.raises(ValueError, match="There is no seat 'bb'"):
        EgoWrapper(Rounds(), "bb")


def test_out_of_the_game_is_the_end_and_a_limit_is_a_truncation() -> None:
    env = EgoWrapper(Rounds(), "a", [stays])
    env.reset(seed=0)
    assert env.step(2)[2:4] == (True, False)
    env.reset(seed=0)
    assert [env.step(1)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]


def test_gymnasium_finds_no_fault() -> None:
    check_env(EgoWrapper(Rounds(), "a"), skip_render_check=True)


def ego() -> EgoWrapper:
    return EgoWrapper(Rounds(), "a", [stays, leaves])


def joint() -> FlattenMultiAgentWrapper:
    return FlattenMultiAgentWrapper(Rounds())


@pytest.mark.parametrize(("make", "task_by", "action"), [(ego, "options", [1]), (joint, "none", [[1, 1, 1]])])
def test_both_wrappers_are_a_family_by_their_factory(make: Any, task_by: str, action: Any) -> None:
    family = GymnasiumFamily.from_factory(make, task_by=task_by, max_episode_steps=4)
    played = Played(family, 2)
    tasks = family.sample_tasks(np.random.default_rng(0), 2, "train")
    played.reset([0, 1], tasks, [0, 1])
    rows = [played.step([0], np.array(action)).truncated[0] for _ in range(4)]
    assert rows == [False, False, False, True]


@pytest.mark.peers
def test_it_plays_games_of_others() -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    make = pytest.importorskip("pettingzoo").make
    push = pytest.importorskip("mpe2.simple_push_v3")
    for seat in ("agent_0", "adversary_0"):
        checker.check_env(EgoWrapper(push.parallel_env(max_cycles=5), seat), skip_render_check=True)

    # A learner that takes the first free field against one that does, too: the first player wins.
    def first_free(obs: Any, space: Any, rng: np.random.Generator) -> int:
        return int(np.argmax(obs["action_mask"]))

    env = EgoWrapper(make("aec", "classic/tictactoe-v3"), "player_2", [first_free])
    obs, _ = env.reset(seed=0)
    ended, paid = False, 0.0
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(int(np.argmax(obs["action_mask"])))
        ended, paid = terminated or truncated, paid + reward
    assert paid == -1

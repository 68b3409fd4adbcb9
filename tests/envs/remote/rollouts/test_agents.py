"""Agents of scripts: one for each client where they remember, in batches, awaited, locked, trained."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.remote.rollouts import ParallelRolloutCollector
from policies.play import load_agent
from tests.envs.remote.rollouts.clients import Awaited, Plain, both_modes
from tests.policies.play.toy import Answering, a_player, agent_file
from utils.options import OptionError


class Remembering:
    """Notes what it is shown, as an agent does that was trained on whole episodes."""

    follows_episodes = True
    reads_rewards = True

    def __init__(self) -> None:
        self.shown: list[tuple[float, bool, float]] = []
        self.resets = 0

    def __call__(self, observation: Any, done: bool, reward: float) -> Any:
        self.shown.append((observation["numbers"][2], done, reward))
        return {"column": 1}

    def reset(self) -> None:
        self.resets += 1


@both_modes
def test_an_agent_that_remembers_is_shown_rewards_and_ends(mode: str) -> None:
    agents = [Remembering(), Remembering()]
    with ParallelRolloutCollector(mode) as collector:
        collector.collect_with_stats([Plain(2), Plain(9)], agents, max_steps=3)
    assert agents[0].shown == [(0, False, 0.0), (1, False, 1.0), (2, True, 2.0)]
    # It is told of an episode that is cut, too.
    assert agents[1].shown == [(0, False, 0.0), (1, False, 1.0), (2, False, 2.0), (3, True, 3.0)]
    assert not agents[0].resets


@both_modes
def test_an_agent_forgets_an_episode_that_was_broken_off(mode: str) -> None:
    agent = Remembering()
    with ParallelRolloutCollector(mode) as collector:
        client = Plain(2, faults={(0, 1): ValueError("broken")})
        collector.collect_with_stats([client], agent, retries=1)
    assert agent.resets == 1 and [t for t, _, _ in agent.shown] == [0, 1, 0, 1, 2]


@both_modes
def test_a_memory_is_not_shared_and_every_client_has_an_agent(mode: str) -> None:
    with ParallelRolloutCollector(mode) as collector:
        with pytest.raises(OptionError, match=r"remembers its episode.*one for each client, as in agent_fn="):
            collector.collect_with_stats([Plain(), Plain()], Remembering())
        with pytest.raises(OptionError, match="agent_fn has 1 functions for 2 clients"):
            collector.collect_with_stats([Plain(), Plain()], [Remembering()])


@both_modes
def test_a_trained_agent_acts_as_in_a_loop_by_hand(mode: str, tmp_path: Path) -> None:
    """Its rewards, its own previous actions, ends and new episodes are those that player.act is handed."""
    player, env, wanted = a_player(tmp_path), Answering(), list[Any]()
    for _ in range(3):
        obs, reward, done = env.reset()[0], 0.0, False
        while not done:
            wanted.append(player.act(obs, reward, done))
            obs, reward, terminated, truncated, _ = env.step(wanted[-1])
            done = terminated or truncated
        player.act(obs, reward, done)

    agent_fn, env = a_player(tmp_path).as_agent_fn(), Answering()
    assert agent_fn.follows_episodes and agent_fn.reads_rewards
    with ParallelRolloutCollector(mode) as collector:
        rollouts, _ = collector.collect_with_stats([env], agent_fn, episodes=3)
    np.testing.assert_array_equal([action for one in rollouts for action in one.actions], wanted)


def test_a_trained_agent_forgets_an_episode_that_was_broken_off(tmp_path: Path) -> None:
    agent_fn = load_agent(agent_file(tmp_path, algorithm="PPO")).as_agent_fn()
    obs = np.array([0.5, -0.5])
    first = agent_fn(obs, False, 0.0)
    agent_fn.reset()
    np.testing.assert_array_equal(agent_fn(obs, False, 0.0), first)


@both_modes
@pytest.mark.parametrize("waits", [False, True])
def test_a_batch_acts_for_all_that_wait(mode: str, waits: bool) -> None:
    sizes: list[int] = []

    def act(observations: list[Any]) -> list[Any]:
        sizes.append(len(observations))
        time.sleep(0.02)
        return [{"column": obs["numbers"][0] % 4} for obs in observations]

    async def act_awaited(observations: list[Any]) -> list[Any]:
        return act(observations)

    clients = [Awaited(4) for _ in range(6)]
    with ParallelRolloutCollector(mode, max_workers=6) as collector:
        rollouts, _ = collector.collect_with_stats(
            clients, batch_agent_fn=act_awaited if waits else act, seeds=range(6)
        )
    assert [one.actions for one in rollouts] == [[{"column": seed % 4}] * 4 for seed in range(6)]
    assert sum(sizes) == 24 and min(sizes) >= 1 and max(sizes) >= 3, "they should act together"


@both_modes
def test_an_error_of_a_batch_reaches_all_that_wait(mode: str) -> None:
    with ParallelRolloutCollector(mode) as collector:
        for wrong, said in ((lambda obs: [], "returned 0 actions for"), (lambda obs: 1 / 0, "division")):
            with pytest.raises((OptionError, ZeroDivisionError), match=said):
                collector.collect_with_stats([Plain(), Plain()], batch_agent_fn=wrong)


@both_modes
def test_an_agent_may_be_a_coroutine(mode: str) -> None:
    async def agent(observation: Any, done: bool) -> Any:
        return {"column": 2}

    with ParallelRolloutCollector(mode) as collector:
        (one,), _ = collector.collect_with_stats([Plain(2)], agent)
    assert one.actions == [{"column": 2}] * 2


@pytest.mark.parametrize("locked", [True, False])
def test_one_thread_at_a_time_is_in_an_agent_that_is_locked(locked: bool) -> None:
    inside, most = 0, 0

    def agent(observation: Any, done: bool) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        together.wait(0.01)
        inside -= 1
        return {"column": 0}

    together = threading.Event()
    with ParallelRolloutCollector(max_workers=4, lock_agent=locked) as collector:
        collector.collect_with_stats([Plain() for _ in range(4)], agent)
    assert (most == 1) is locked

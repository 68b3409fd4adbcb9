"""An episode is whole, cut, empty, begun anew or broken off, and nothing of it is repeated."""

from __future__ import annotations

import time
from typing import Any

from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.rollouts.clients import Plain, both_modes, column


@both_modes
def test_episodes_are_cut_at_max_steps_and_keep_what_a_bootstrap_needs(mode: str) -> None:
    with ParallelRolloutCollector(mode) as collector:
        (one,), _ = collector.collect_with_stats([Plain(9)], column, max_steps=2)
    assert one.truncated and not one.terminated and one.dones == [False, False]
    assert one.final_observation["numbers"] == [0, 0, 2, 3.0]


@both_modes
def test_an_episode_that_is_over_at_its_reset_has_length_0(mode: str) -> None:
    with ParallelRolloutCollector(mode) as collector:
        (one,), stats = collector.collect_with_stats([Plain(0)], column)
    assert (one.episode_length, one.observations, stats.num_episodes) == (0, [], 1)


@both_modes
def test_an_episode_that_fails_is_begun_anew_in_a_new_session_and_no_step_is_repeated(mode: str) -> None:
    def cut(session: int, message: dict[str, Any], index: int) -> str | None:
        return "cut" if session < 2 and index == 3 else None

    collector = ParallelRolloutCollector(mode)
    with FakeServer(cut) as server, HttpEnvClient(server.url) as client, collector:
        (one,), stats = collector.collect_with_stats([client], column, seeds=[4], retries=2)
    assert one.attempts == 3 and stats.retries == 2 and not stats.failures
    assert [obs["numbers"][2] for obs in one.observations] == [0, 1, 2, 3, 4]
    assert [session for session, _ in server.steps()] == [0] * 3 + [1] * 3 + [2] * 5


@both_modes
def test_time_is_told_of_environment_and_agent(mode: str) -> None:
    def agent(observation: Any, done: bool) -> Any:
        time.sleep(0.02)
        return {"column": 0}

    with ParallelRolloutCollector(mode) as collector:
        _, stats = collector.collect_with_stats([Plain(3, wait_s=0.04)], agent)
    assert stats.env_ms >= 40.0 and stats.agent_ms >= 20.0

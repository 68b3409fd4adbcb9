"""Clients of any kind give the same rollouts, each called where it belongs."""

from __future__ import annotations

import pytest

from envs.remote.rollouts import ParallelRolloutCollector
from tests.envs.remote.rollouts.clients import Auto, Awaited, Plain, Syncable, both_modes, column


@both_modes
@pytest.mark.parametrize("kind", [Plain, Awaited, Auto, Syncable])
def test_every_kind_of_client_gives_the_same_rollouts(kind: type[Plain], mode: str) -> None:
    clients = [kind(length) for length in (3, 1, 4)]
    with ParallelRolloutCollector(mode, max_workers=2) as collector:
        rollouts, stats = collector.collect_with_stats(clients, column, seeds=[5, 6, 7])
        again, _ = collector.collect_with_stats(clients, column, seeds=[5, 6, 7])
    assert [one.episode_length for one in rollouts] == [3, 1, 4] and stats.total_steps == 8
    assert [one.env_name for one in rollouts] == ["env_0", "env_1", "env_2"]
    first = rollouts[0]
    assert [obs["numbers"] for obs in first.observations] == [[5, 0, 0, 0], [5, 0, 1, 1], [5, 0, 2, 3]]
    assert first.actions == [{"column": 1}, {"column": 2}, {"column": 3}]
    assert (first.rewards, first.dones) == ([1.0, 3.0, 6.0], [False, False, True])
    assert first.final_observation["numbers"] == [5, 0, 3, 6.0]
    assert first.terminated and not first.truncated and first.episode_return == 10.0
    assert [one.observations for one in again] == [one.observations for one in rollouts]


@both_modes
def test_seeds_and_arguments_reach_the_reset_of_their_episode(mode: str) -> None:
    one, two = Plain(), Plain()
    with ParallelRolloutCollector(mode) as collector:
        collector.collect_with_stats(
            [one, two], column, seeds=[3, 4], reset_kwargs=[{"task": 1}, {"task": 2}]
        )
        collector.collect_with_stats([one, two], column, reset_kwargs={"task": 5})
    assert one.resets == [{"seed": 3, "task": 1}, {"task": 5}]
    assert two.resets == [{"seed": 4, "task": 2}, {"task": 5}]


def test_a_blocking_client_keeps_its_thread_in_mode_async() -> None:
    clients = [Plain() for _ in range(5)]
    with ParallelRolloutCollector("async", max_workers=2) as collector:
        for order in (clients, clients[::-1]):
            collector.collect_with_stats(order, column)
    assert all(len(client.threads) == 1 for client in clients)
    assert len(set.union(*(client.threads for client in clients))) == 2


def test_the_blocking_face_of_a_client_is_made_once() -> None:
    client = Syncable()
    with ParallelRolloutCollector("thread") as collector:
        for _ in range(3):
            collector.collect_with_stats([client], column)
    assert client.faces == 1

"""Plans: what is refused, who plays which episode, and how many are under way."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from envs.remote.rollouts import ParallelRolloutCollector
from tests.envs.remote.rollouts.clients import Plain, both_modes, column
from utils.options import OptionError


@both_modes
def test_what_cannot_be_meant_is_refused_before_any_call(mode: str) -> None:
    one, two = Plain(), Plain()
    with ParallelRolloutCollector(mode) as collector:
        refused: list[tuple[list[Plain], Any, str]] = [
            ([], {}, "There are no clients"),
            ([one, two, one], {}, "Client 2 is client 0 once more: .* make a client for each"),
            ([one, two], {"env_names": ["a"]}, "env_names has 1 entries, and one for each client is 2"),
            ([one, two], {"seeds": [1]}, "seeds has 1 entries, and one for each episode is 2"),
            ([one], {"episodes": 2, "reset_kwargs": [{}]}, "reset_kwargs has 1 entries"),
            ([one], {"max_steps": 0}, "max_steps=0 must be at least 1"),
            ([one], {"retries": -1}, "retries=-1 must be at least 0"),
            ([one], {"on_error": "dorp"}, "on_error='dorp' is none. Did you mean 'drop'"),
            ([one], {"batch_agent_fn": list}, "agent_fn, or batch_agent_fn"),
        ]
        for clients, options, said in refused:
            with pytest.raises(OptionError, match=said):
                collector.collect_with_stats(clients, column, **options)
    assert not one.resets and not two.resets
    with pytest.raises(OptionError, match=r"execution_mode='treads' is none\. Did you mean 'thread'"):
        ParallelRolloutCollector("treads")
    with pytest.raises(OptionError, match="max_workers=0 must be at least 1"):
        ParallelRolloutCollector(max_workers=0)
    with pytest.raises(RuntimeError, match="has been shut down: make another one"):
        collector.collect_with_stats([one], column)


@both_modes
def test_a_free_client_plays_the_next_of_more_episodes(mode: str) -> None:
    slow, quick = Plain(2, wait_s=0.2), Plain(2)
    with ParallelRolloutCollector(mode) as collector:
        rollouts, stats = collector.collect_with_stats(
            [slow, quick], column, env_names=["slow", "quick"], episodes=9, seeds=range(9)
        )
    assert [one.index for one in rollouts] == list(range(9)) == [one.seed for one in rollouts]
    assert [one.observations[0]["numbers"][0] for one in rollouts] == list(range(9))
    assert len(quick.resets) > len(slow.resets) >= 1 and stats.num_episodes == 9


def test_fewer_threads_than_clients_are_a_queue() -> None:
    together, most = 0, 0
    lock = threading.Lock()

    def agent(observation: Any, done: bool) -> Any:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.005)
        with lock:
            together -= 1
        return {"column": 0}

    with ParallelRolloutCollector(max_workers=2) as collector:
        rollouts, _ = collector.collect_with_stats([Plain() for _ in range(6)], agent)
    assert most == 2 and [one.index for one in rollouts] == list(range(6))


@both_modes
def test_a_stream_keeps_no_more_rollouts_than_clients_play(mode: str) -> None:
    clients = [Plain(1) for _ in range(3)]
    with ParallelRolloutCollector(mode, max_workers=3) as collector:
        stream = collector.stream(clients, column, episodes=30)
        for used, one in enumerate(stream, 1):
            time.sleep(0.01)
            begun = sum(len(client.resets) for client in clients)
            assert one.episode_length == 1 and begun <= used + 3
            if used == 8:
                break
        stream.close()  # pyright: ignore[reportAttributeAccessIssue]
        # Nothing goes on.
        begun = sum(len(client.resets) for client in clients)
        time.sleep(0.05)
        assert sum(len(client.resets) for client in clients) == begun < 30

"""The collector: rollouts in order, failures told, interrupts ended, nothing left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.remote.protocol import UnsendableError
from envs.remote.rollouts import HttpEnvClient, ParallelRolloutCollector
from tests.envs.remote.fake_server import FakeServer
from tests.envs.remote.rollouts.clients import Awaited, Plain, both_modes, column


@both_modes
def test_our_own_clients_play_at_the_same_time_on_one_session_each(mode: str) -> None:
    def slow(session: int, message: dict[str, Any], index: int) -> float | None:
        return 0.2 if message["type"] == "step" else None

    with FakeServer(slow) as server:
        clients = [HttpEnvClient(server.url) for _ in range(8)]
        with ParallelRolloutCollector(mode, max_workers=8) as collector:
            rollouts, _ = collector.collect_with_stats(clients, column)
            # All have begun before the first one ends.
            began = [i for i, (_, message) in enumerate(server.log) if message["type"] == "reset"]
            steps = [i for i, (_, message) in enumerate(server.log) if message["type"] == "step"]
            assert len(began) == 8 and began[-1] < steps[-8]
            collector.collect_with_stats(clients, column, max_steps=1)
        assert server.sessions == 8 and [one.episode_length for one in rollouts] == [5] * 8
        for client in clients:
            client.close()


@both_modes
def test_failures_are_raised_or_told_and_the_order_is_kept(mode: str) -> None:
    def clients() -> list[Plain]:
        broken = Plain(faults={(n, 1): ValueError("broken") for n in range(9)})
        return [Plain(2), broken, Plain(4)]

    with ParallelRolloutCollector(mode) as collector:
        with pytest.raises(ValueError, match="broken") as raised:
            collector.collect_with_stats(clients(), column, env_names=["a", "b", "c"])
        assert raised.value.__notes__ == ["in episode 1 of b"]
        mixed = clients()
        rollouts, stats = collector.collect_with_stats(
            mixed, column, env_names=["a", "b", "c"], retries=1, on_error="drop"
        )
    assert [one.index for one in rollouts] == [0, 2] and [one.env_name for one in rollouts] == ["a", "c"]
    assert stats.failures == [(1, "b", "ValueError: broken")] and stats.num_episodes == 2
    # The client in doubt was disconnected each time, also after the last: its next reset begins anew.
    assert mixed[1].disconnects == 2 and len(mixed[1].resets) == 2 and not mixed[0].disconnects


@both_modes
def test_an_interrupt_ends_everything_and_is_neither_retried_nor_dropped(mode: str) -> None:
    endless = Plain(10**9, wait_s=0.001)
    broken = Plain(faults={(0, 1): KeyboardInterrupt()})
    with ParallelRolloutCollector(mode) as collector:
        with pytest.raises(KeyboardInterrupt):
            collector.collect_with_stats(
                [endless, broken], column, max_steps=10**9, retries=5, on_error="drop"
            )
        assert len(broken.resets) == 1
        # Both clients are free again.
        endless.length = 1
        collector.collect_with_stats([endless], column, max_steps=1)


@both_modes
def test_a_stream_tells_the_log_of_an_episode_that_is_left_out(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Plain(faults={(0, 0): ValueError("broken")})
    with ParallelRolloutCollector(mode) as collector:
        streamed = collector.stream([broken], column, env_names=["b"], episodes=2, on_error="drop")
        assert [one.index for one in streamed] == [1]
        assert "Episode 0 of b is left out: ValueError: broken" in caplog.text
        broken = Plain(faults={(0, 0): ValueError("broken")})
        with pytest.raises(ValueError, match="broken"):
            list(collector.stream([broken], column))


@both_modes
def test_shutdown_twice_and_by_forgetting(mode: str) -> None:
    collector = ParallelRolloutCollector(mode)
    collector.collect_with_stats([Plain()], column)
    collector.shutdown(wait=True, timeout=10)
    collector.shutdown()
    ParallelRolloutCollector(mode).collect_with_stats([Plain(), Awaited()], column)


@both_modes
def test_an_action_that_cannot_be_sent_names_its_field_and_its_episode(mode: str) -> None:
    def agent(observation: Any, done: bool) -> Any:
        return {"column": np.int64(1) if observation["numbers"][0] == 1 else object()}

    with FakeServer() as server, ParallelRolloutCollector(execution_mode=mode) as collector:
        clients = [HttpEnvClient(server.url) for _ in range(2)]
        with pytest.raises(UnsendableError, match="The field 'column' of a step is <object") as raised:
            collector.collect_with_stats(clients, agent, env_names=["a", "b"], seeds=[1, 2])
        assert raised.value.__notes__ == ["in episode 1 of b"]
        (one,), stats = collector.collect_with_stats(clients, agent, seeds=[1, 2], on_error="drop")
        assert one.rewards == [1.0, 2.0, 3.0, 4.0, 5.0] and stats.failures[0][0] == 1
        for client in clients:
            client.close()

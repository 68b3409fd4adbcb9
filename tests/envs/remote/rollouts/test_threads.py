"""The executor of threads under its published names, its pool among them, and its end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import as_completed
from typing import Any

import pytest

from envs.remote.protocol import RemoteError
from envs.remote.rollouts import ParallelEnvironmentExecutor
from envs.remote.rollouts.threads import RolloutPool
from tests.envs.remote.rollouts.clients import Awaited, Plain, column


class Held(Plain):
    """Steps when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.stepping, self.go_on = threading.Event(), threading.Event()

    def step(self, action: dict[str, Any]) -> Any:
        self.stepping.set()
        assert self.go_on.wait(60.0)
        return self._stepped(action)


def test_rollouts_by_the_published_names() -> None:
    with ParallelEnvironmentExecutor(max_workers=2) as executor:
        one = executor.collect_rollout(Plain(2), column, 1000, "here", seed=5, reset_kwargs={"task": 1})
        assert (one.env_name, one.episode_length, one.observations[0]["numbers"][:2]) == ("here", 2, [5, 1.0])
        lengths = [
            len(one.dones) for one in executor.collect_rollouts_parallel([Plain(3), Awaited(1)], column)
        ]
        assert lengths == [3, 1]


def test_an_error_names_its_episode_without_a_collector_too() -> None:
    faults: dict[tuple[int, int], BaseException] = {(0, 1): ValueError("broken")}
    with (
        ParallelEnvironmentExecutor(max_workers=2) as executor,
        pytest.raises(ValueError, match="broken") as raised,
    ):
        executor.collect_rollout(Plain(faults=faults), column, 9, "alone")
    assert raised.value.__notes__ == ["in episode 0 of alone"]


def test_what_a_script_submits_to_the_pool_runs_in_its_threads() -> None:
    def agent(wish: int) -> Any:
        return lambda observation, done: {"column": wish}

    executor = ParallelEnvironmentExecutor(max_workers=4)
    submit = executor.executor.submit
    futures = [
        submit(executor.collect_rollout, Plain(), agent(wish), 1000, f"wish_{wish}") for wish in range(4)
    ]
    returns = {one.result().env_name: one.result().episode_return for one in as_completed(futures)}
    assert returns == {f"wish_{wish}": 6.0 * wish for wish in range(4)}
    executor.shutdown()


def test_a_client_that_plays_already_is_refused_and_not_disturbed() -> None:
    client = Held()
    with ParallelEnvironmentExecutor(max_workers=2) as executor:
        playing = executor.executor.submit(executor.collect_rollout, client, column)
        assert client.stepping.wait(60.0)
        with pytest.raises(RemoteError, match="plays an episode already"):
            executor.collect_rollout(client, column)
        client.go_on.set()
        assert playing.result().episode_length == 3 and len(client.resets) == 1


def test_shutdown_ends_an_endless_episode_at_its_next_call() -> None:
    executor = ParallelEnvironmentExecutor()
    client = Plain(10**9, wait_s=0.001)
    playing = executor.executor.submit(executor.collect_rollout, client, column, 10**9)
    while not client.resets:
        time.sleep(0.001)
    executor.shutdown(wait=True, timeout=60)
    assert playing.done()


def test_a_pool_gives_up_waiting_after_its_time_out(caplog: pytest.LogCaptureFixture) -> None:
    pool, go_on = RolloutPool(1), threading.Event()
    held = pool.submit(go_on.wait, 60.0)
    pool.shutdown(wait=True, timeout=0.05)
    assert "1 calls go on after 0.05 s" in caplog.text and not held.done()
    with pytest.raises(RuntimeError):
        pool.submit(int)
    go_on.set()
    pool.shutdown(wait=True, timeout=60)
    assert held.result()

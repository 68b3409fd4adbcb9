"""Throttles: so many calls before one server, and so long between two of one client."""

from __future__ import annotations

import threading
import time
from typing import Any

from envs.remote.rollouts import ParallelRolloutCollector
from tests.envs.remote.rollouts.clients import Plain, both_modes, column


@both_modes
def test_calls_to_one_server_are_throttled(mode: str) -> None:
    lock, under_way, most = threading.Lock(), dict[str, int](), dict[str, int]()

    class Counted(Plain):
        def step(self, action: dict[str, Any]) -> Any:
            with lock:
                under_way[self.base_url] = under_way.get(self.base_url, 0) + 1
                most[self.base_url] = max(most.get(self.base_url, 0), under_way[self.base_url])
            time.sleep(0.05)  # so long that others come in between
            with lock:
                under_way[self.base_url] -= 1
            return self._stepped(action)

    clients = [Counted(base_url=url) for url in ("a", "b") for _ in range(4)]
    with ParallelRolloutCollector(mode, max_workers=8, max_in_flight=2) as collector:
        collector.collect_with_stats(clients, column)
    assert most == {"a": 2, "b": 2}


@both_modes
def test_a_client_is_called_again_after_its_interval_only(mode: str) -> None:
    with ParallelRolloutCollector(mode, min_interval_s=0.03) as collector:
        began = time.monotonic()
        collector.collect_with_stats([Plain(4), Plain(4)], column)
        assert time.monotonic() - began >= 4 * 0.03, "a reset and four steps are four intervals"

"""The stopwatch hands every moment to one share."""

from __future__ import annotations

import pytest

from utils import stopwatch
from utils.stopwatch import Stopwatch


def test_laps_are_shared_out_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now[0])
    watch = Stopwatch()
    for name, until in (("act", 1.0), ("env", 4.0), ("act", 5.0)):
        now[0] = until
        watch.lap(name)
    assert watch.seconds == {"act": 2.0, "env": 3.0}
    assert watch.shares() == {"act": 0.4, "env": 0.6}
    assert watch.total == 5.0


def test_no_laps_are_no_shares() -> None:
    assert Stopwatch().shares() == {}

"""Collectors: actors play where a run has them, unless an environment is given."""

from __future__ import annotations

import pytest

from policies.collection import remote
from policies.collection.collector import LocalCollector
from policies.collection.remote.collector import RemoteCollector
from policies.learner import Learner
from tests.actors import PoolHere, config_with_actors


def test_an_environment_that_is_given_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(remote.POOLS, "processes", PoolHere)
    with Learner(config_with_actors()) as learner:
        what = learner.agent, learner.buffer, lambda _: False
        assert isinstance(learner.collectors.make(*what), RemoteCollector)
        assert isinstance(learner.collectors.make(*what, env=learner.train_env), LocalCollector)
        learner.collect_rollouts_parallel(2)
        assert not isinstance(learner.actors, PoolHere) or learner.actors.orders == [], (
            "sequentially, as ever"
        )

"""ActorPool: an actor may be lost a few times in a wave, and not for ever."""

from __future__ import annotations

import logging

import pytest

from envs.parallel_env_manager import WorkerError
from policies.collection.remote.pool import ATTEMPTS
from tests.actors import PoolHere, config_with_actors


def test_an_actor_that_is_lost_again_and_again_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    pool = PoolHere(config_with_actors())
    with caplog.at_level(logging.WARNING):
        for attempt in range(ATTEMPTS - 1):
            pool.lose(1, attempt, "signal 9")
    assert pool.restarts == ATTEMPTS - 1 and "Actor 1 was lost (signal 9)" in caplog.text
    with pytest.raises(WorkerError, match="Actor 1 was lost 3 times"):
        pool.lose(1, ATTEMPTS - 1, "signal 9")

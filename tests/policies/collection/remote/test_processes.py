"""ProcessPool: what is killed or stopped changes no bit, errors are told, and nothing stays behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from envs.parallel_env_manager import WorkerError
from policies.collection import remote
from policies.collection.remote.collector import RemoteCollector
from policies.collection.remote.processes import ProcessPool
from policies.collection.wave import WaveInterrupted
from policies.learner import Learner
from tests.actors import NORMALISED, PoolHere, config_with_actors
from tests.runs import digest, stored_rows


def rows_of(learner: Learner, disturb: Callable[[ProcessPool], None] = lambda _: None) -> str:
    """Three waves, the second of which is disturbed."""
    for wave in range(3):
        if wave == 1 and isinstance(learner.actors, ProcessPool):
            disturb(learner.actors)
        learner.collect_wave(4, random=wave == 0)
    return digest(stored_rows(learner))


def test_a_killed_and_a_stopped_actor_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    with Learner(config_with_actors(agent=NORMALISED)) as learner, monkeypatch.context() as here:
        here.setitem(remote.POOLS, "processes", PoolHere)
        with Learner(learner.config) as plain:
            wanted = rows_of(plain)

        def disturb(pool: ProcessPool) -> None:
            killed, stopped = pool.pids
            os.kill(killed, signal.SIGKILL)
            os.kill(stopped, signal.SIGSTOP)
            learner.config.collector.timeout_s = 20.0

        assert rows_of(learner, disturb) == wanted
        assert isinstance(learner.actors, ProcessPool) and learner.actors.restarts >= 2
        pids, folder = learner.actors.pids, learner.actors._files()
    assert not any(psutil.pid_exists(pid) for pid in pids) and not folder.exists()


def test_a_run_is_stopped_while_its_actors_play() -> None:
    with Learner(config_with_actors()) as learner:
        pool = learner.actors
        assert isinstance(pool, ProcessPool)
        collector = RemoteCollector(
            learner.context, learner.progress, pool, learner.agent, learner.buffer, lambda _: True
        )
        with pytest.raises(WaveInterrupted):
            collector.collect(4)
        assert pool.pids == [] and learner.buffer.num_added == 0


def test_what_goes_wrong_in_an_actor_is_told() -> None:
    config = config_with_actors()
    with Learner(config) as learner:
        # An option that only an actor meets: its config is sent after the run's own has been checked.
        config.env.max_episode_steps = -1
        learner.config.env.max_episode_steps = -1
        with pytest.raises(WorkerError, match=r"(?s)Actor \d failed.*Traceback"):
            learner.collect_wave(2, random=True)

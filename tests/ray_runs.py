"""Runs with Ray, each in a process of its own, since Ray leaves descriptors in the one that has used it.

python -m tests.ray_runs killed|silent|small|crowded|full|nodes|endless
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import psutil

from envs.parallel_env_manager import WorkerError
from policies.collection import remote
from policies.collection.remote import ray_cluster
from policies.collection.remote.actor import PlayedWave, WaveOrder
from policies.collection.remote.ray_cluster import LOCAL_SETTINGS, RayPool
from policies.learner import Learner
from policies.run.config import CollectorConfig, Config
from tests.actors import NORMALISED, PoolHere, config_with_actors
from tests.runs import digest, stored_rows

# Trials that two actors play for seconds, and that fit into the replay of a tiny run.
MANY = 2000
LOOPBACK = "127.0.0.1"


def config_of_ray(**options: Any) -> Config:
    config = config_with_actors(agent=NORMALISED, train={"buffer_size": 40_000})
    return replace(config, collector=CollectorConfig("ray", 2, **options))


def pool_of(learner: Learner) -> RayPool:
    pool = learner.actors
    assert isinstance(pool, RayPool)
    return pool


def strike_in_the_next_wave(learner: Learner, strike: Callable[[], object]) -> None:
    """Call `strike` once in the middle of the next wave, whose actors are there already."""
    pool, struck = pool_of(learner), list[bool]()
    play = pool.play

    def playing(orders: Sequence[WaveOrder], stops: Callable[[], bool]) -> list[PlayedWave]:
        def asked() -> bool:
            if not struck:
                struck.append(True)
                strike()
            return stops()

        return play(orders, asked)

    pool.play = playing  # pyright: ignore[reportAttributeAccessIssue]


def waves(learner: Learner, *trials: int) -> str:
    """The hash of all rows after these waves, the first of random actions."""
    for wave, most in enumerate(trials):
        learner.collect_wave(most, random=wave == 0)
    return digest(stored_rows(learner))


def waves_here(*trials: int) -> str:
    """The same by the plain class in this process."""
    remote.POOLS["ray"] = PoolHere
    with Learner(config_of_ray()) as learner:
        return waves(learner, *trials)


def fault(signal_number: int, **options: Any) -> None:
    """An actor gets a signal in mid-wave: it is replaced, and the rows are those of the plain class."""
    with Learner(config_of_ray(**options)) as learner:
        learner.collect_wave(4, random=True)
        second = pool_of(learner).pids[1]  # asked now, since an actor that plays does not answer
        strike_in_the_next_wave(learner, lambda: os.kill(second, signal_number))
        learner.collect_wave(MANY)
        assert pool_of(learner).restarts == 1
        learner.collect_wave(4)
        rows = digest(stored_rows(learner))
    assert not importlib.import_module("ray").is_initialized(), "its cluster is gone with the run"
    assert rows == waves_here(4, MANY, 4)


def killed() -> None:
    fault(signal.SIGKILL)


def silent() -> None:
    """An actor stops in mid-wave and says nothing, as one whose machine hangs."""
    fault(signal.SIGSTOP, timeout_s=10.0)


def small() -> None:
    ray = importlib.import_module("ray")
    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address=LOOPBACK)
    try:
        with Learner(config_of_ray()) as learner:
            learner.collect_wave(4)
    except WorkerError as error:
        assert "need 2 CPUs, and the Ray cluster has 1" in str(error)
    else:
        raise AssertionError("it waited for what is not there")
    assert ray.is_initialized(), "the cluster of somebody else goes on"


def crowded() -> None:
    """Somebody else has one of the two CPUs: the run says that it waits, and goes on when it is free."""
    ray = importlib.import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address=LOOPBACK)
    other = ray.remote(num_cpus=1)(Other).remote()
    assert ray.get(other.here.remote())
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            ray.kill(other)

    logging.getLogger(ray_cluster.__name__).addHandler(Listening())
    ray_cluster.PATIENCE_S = 2.0
    with Learner(config_of_ray()) as learner:
        rows = waves(learner, 4, 4)
        assert pool_of(learner).restarts == 0
    # An actor that is being started takes more than two seconds as well.
    assert said and all("cannot play yet after" in one for one in said)
    assert rows == waves_here(4, 4)


def full() -> None:
    """Somebody else's arrays are more than the object store holds: the rows go by way of the disk."""
    ray = importlib.import_module("ray")
    store, part = 100_000_000, 60_000_000
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address=LOOPBACK, object_store_memory=store)
    theirs = [ray.put(np.zeros(part, np.uint8)) for _ in range(3)]
    with Learner(config_of_ray()) as learner:
        rows = waves(learner, 4, MANY)
        assert pool_of(learner).restarts == 0
    assert sum(ray.get(one).size for one in theirs) > store
    assert rows == waves_here(4, MANY)


class Other:
    """An actor of somebody else."""

    def here(self) -> bool:
        return True


@contextmanager
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with a CPU each, as two machines would be, on the loopback of this one."""
    cluster_utils = importlib.import_module("ray.cluster_utils")
    head = {"num_cpus": 1, "node_ip_address": LOOPBACK, "include_dashboard": False}
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        found.add_node(num_cpus=1, node_ip_address=LOOPBACK)
        yield found
    finally:
        found.shutdown()


def raylet_of(node: Any) -> int:
    """The process that a node is: its actors are children of it."""
    return node.all_processes["raylet"][0].process.pid


def nodes() -> None:
    """An actor on each of two nodes: the rows of the plain class, also where a node dies in mid-wave."""
    with cluster() as two, Learner(config_of_ray(address=two.address)) as learner:
        learner.collect_wave(4, random=True)
        hosts = {psutil.Process(pid).ppid() for pid in pool_of(learner).pids}
        (second,) = two.worker_nodes
        assert hosts == {raylet_of(two.head_node), raylet_of(second)}, "one actor on each"

        # 1. A third node is there when the second dies, so the wave goes on there.
        third = two.add_node(num_cpus=1, node_ip_address=LOOPBACK)
        strike_in_the_next_wave(learner, lambda: os.kill(raylet_of(second), signal.SIGKILL))
        learner.collect_wave(MANY)
        assert pool_of(learner).restarts == 1
        rows = digest(stored_rows(learner))

        # 2. When that one dies as well there is no room for two actors any more.
        strike_in_the_next_wave(learner, lambda: os.kill(raylet_of(third), signal.SIGKILL))
        try:
            learner.collect_wave(MANY)
        except WorkerError as error:
            assert "need 2 CPUs, and the Ray cluster has 1: add machines and resume" in str(error)
        else:
            raise AssertionError("it waited for a node that is gone")
        assert digest(stored_rows(learner)) == rows, "a wave that breaks off leaves no trace"
    assert rows == waves_here(4, MANY)


def endless() -> None:
    """Plays until it is killed; its first line says that its actors do."""
    with Learner(config_of_ray()) as learner:
        learner.collect_wave(4)
        sys.stdout.write("playing\n")
        sys.stdout.flush()
        while True:
            learner.collect_wave(MANY)


if __name__ == "__main__":
    os.environ.update(LOCAL_SETTINGS)
    {one.__name__: one for one in (killed, silent, small, crowded, full, nodes, endless)}[sys.argv[1]]()

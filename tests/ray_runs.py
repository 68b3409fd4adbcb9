"""Runs with Ray, each in a process of its own, since Ray leaves descriptors in the one that has used it.

python -m tests.ray_runs killed|small
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import replace

from envs.parallel_env_manager import WorkerError
from policies.collection import remote
from policies.collection.remote.ray_cluster import RayPool
from policies.learner import Learner
from policies.run.config import CollectorConfig, Config
from tests.actors import PoolHere, config_with_actors
from tests.runs import digest, stored_rows


def config_of_ray() -> Config:
    return replace(config_with_actors(), collector=CollectorConfig("ray", 2))


def rows_of_waves() -> tuple[str, int]:
    """Three waves; with Ray an actor is killed before the last. Their rows, and how many actors were lost."""
    with Learner(config_of_ray()) as learner:
        assert learner.actors is not None
        for wave in range(3):
            if wave == 2 and isinstance(learner.actors, RayPool):
                os.kill(learner.actors.pids[1], signal.SIGKILL)
            learner.collect_wave(4, random=wave == 0)
        return digest(stored_rows(learner)), learner.actors.restarts


def killed() -> None:
    rows, lost = rows_of_waves()
    assert lost >= 1
    assert not importlib.import_module("ray").is_initialized(), "its cluster is gone with the run"
    remote.POOLS["ray"] = PoolHere
    assert rows == rows_of_waves()[0]


def small() -> None:
    ray = importlib.import_module("ray")
    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        with Learner(config_of_ray()) as learner:
            learner.collect_wave(4)
    except WorkerError as error:
        assert "need 2 CPUs, and the Ray cluster has 1" in str(error)
    else:
        raise AssertionError("it waited for what is not there")
    assert ray.is_initialized(), "the cluster of somebody else goes on"


if __name__ == "__main__":
    {"killed": killed, "small": small}[sys.argv[1]]()

"""Rollouts: scripts collect episodes from many clients at once, of our servers or of anybody's."""

from envs.remote.rollouts.collector import ParallelRolloutCollector
from envs.remote.rollouts.coroutines import AsyncParallelExecutor
from envs.remote.rollouts.http_client import HttpEnvClient
from envs.remote.rollouts.rollout import ParallelRolloutStats, Rollout
from envs.remote.rollouts.threads import ParallelEnvironmentExecutor

__all__ = [
    "AsyncParallelExecutor",
    "HttpEnvClient",
    "ParallelEnvironmentExecutor",
    "ParallelRolloutCollector",
    "ParallelRolloutStats",
    "Rollout",
]

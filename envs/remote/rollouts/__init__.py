"""Rollouts: scripts collect episodes from many clients at once, of our servers or of anybody's."""

from typing import Any

from envs.remote.rollouts.collector import ParallelRolloutCollector
from envs.remote.rollouts.coroutines import AsyncParallelExecutor
from envs.remote.rollouts.http_client import HttpEnvClient
from envs.remote.rollouts.rollout import ParallelRolloutStats, Rollout
from envs.remote.rollouts.threads import ParallelEnvironmentExecutor

# Found by `__getattr__` when they are first asked for.
OpenEnvGymnasiumWrapper: Any
pad: Any

__all__ = [
    "AsyncParallelExecutor",
    "HttpEnvClient",
    "OpenEnvGymnasiumWrapper",
    "ParallelEnvironmentExecutor",
    "ParallelRolloutCollector",
    "ParallelRolloutStats",
    "Rollout",
    "pad",
]


def __getattr__(name: str) -> Any:
    """Two names that scripts import from here, and that stand on this package: one of them needs torch."""
    if name == "OpenEnvGymnasiumWrapper":
        from envs.interop.openenv_wrapper import OpenEnvGymnasiumWrapper

        return OpenEnvGymnasiumWrapper
    if name == "pad":
        from buffers.rollout_tensors import pad

        return pad
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The family OpenEnv over a fake server, for tests: with options that fit it, and rows of trials."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.backends.base import BackendConfig
from envs.base import TaskFamily
from envs.meta.make_env import make_family
from envs.parallel_env_manager import ParallelEnvManager
from tests.envs.remote.fake_server import FakeServer

OPTIONS: dict[str, Any] = {
    "observation": ["numbers:4"],
    "text": ["text:10"],
    "mask": "legal_actions",
    "actions": ["column:4"],
    "tasks": ["task=0|1|2"],
    "max_episode_steps": 4,
    "patience_s": 20.0,
}
SCRIPTED = np.arange(40) % 3


def family_of(*servers: FakeServer, **options: Any) -> TaskFamily:
    return make_family("OpenEnv", urls=[server.url for server in servers], **(OPTIONS | options))


def manager_of(family: TaskFamily, slots: int = 3, backend: str = "serial", **settings: Any) -> Any:
    return ParallelEnvManager(
        family,
        slots,
        episodes_per_trial=2,
        seed=3,
        backend=BackendConfig(name=backend, **settings),
        num_workers=2 if backend in ("process", "thread") else 1,
    )


def rows_of(family: TaskFamily, backend: str = "serial", when: Any = None, **settings: Any) -> list[Any]:
    """All rows of one trial in each slot, with actions that are written down; `when(t)` is called before."""
    seen: list[Any] = []
    with manager_of(family, backend=backend, **settings) as manager:
        rows = manager.reset()
        for t, action in enumerate(SCRIPTED[:9].tolist()):
            numbers = rows.obs["observation"].copy()
            seen.append(
                (numbers.tolist(), rows.reward.tolist(), rows.terminated.tolist(), rows.valid.tolist())
            )
            if when is not None:
                when(t)
            rows = manager.step(np.full(3, action))
    return seen

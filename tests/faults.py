"""Faults on purpose: a small run whose data is known, a fault somewhere in it, and what is left of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envs.backends.base import BackendConfig, OnFault
from envs.base import TaskFamily
from envs.parallel_env_manager import EnvCrashLoopError, ParallelEnvManager, WorkerError
from tests.streams import stream_hash, trial_streams
from tests.toys import CountingConfig, CountingFamily
from tests.toys_faulty import FaultyFamily

SLOTS, TRIALS, WORKERS = 5, 9, 2
# For calls that a test lets hang; all others have so long that no busy machine misses it.
DEADLINE_S = 0.35
IN_ONE_THREAD = ("serial", "asyncio")
TOY: dict[str, Any] = {"falls": True, "max_episode_steps": 6}
FAULT_FREE = CountingFamily(CountingConfig(max_episode_steps=6))


def manage(
    family: TaskFamily, name: str = "process", workers: int = WORKERS, *, groups: int = 1, **options: Any
) -> ParallelEnvManager:
    """Five slots in two workers, three episodes per trial."""
    config = BackendConfig(name=name, threads=1 if name in ("serial", "thread") else None, **options)
    num_workers = 1 if name in IN_ONE_THREAD else workers
    return ParallelEnvManager(
        family, SLOTS, episodes_per_trial=3, num_workers=num_workers, num_groups=groups, backend=config
    )


def faulty(folder: Path, fault: str = "raise", times: int = 1, **options: Any) -> FaultyFamily:
    """A family that fails so often and then behaves."""
    return FaultyFamily(**{"at": 3, **TOY, **options}, fault=fault, times=times, folder=str(folder))


def happened(folder: Path, what: str = "failure") -> int:
    """How often a toy has failed (or failed `again`), in all processes together."""
    return len(list(folder.glob(f"{what}-*")))


def played(manager: ParallelEnvManager) -> str:
    """The hash of nine trials."""
    return stream_hash(manager, TRIALS)


@cache
def fault_free_streams() -> list[bytes]:
    """Each trial of the run without any fault."""
    with manage(FAULT_FREE, "serial") as manager:
        return trial_streams(manager, TRIALS)


@cache
def fault_free() -> str:
    """The hash of the run without any fault."""
    with manage(FAULT_FREE, "serial") as manager:
        return played(manager)


def check_run(manager: ParallelEnvManager, policy: OnFault, num_faults: int = 1) -> str:
    """Play through the faults and check what the policy promises; with `raise`, the text of the error."""
    if policy is OnFault.restart:
        assert played(manager) == fault_free()
        assert manager.faults.restarts >= num_faults and not manager.faults.dropped
    elif policy is OnFault.drop:
        pairs = list(zip(trial_streams(manager, TRIALS), fault_free_streams(), strict=True))
        short = [one for one, whole in pairs if one != whole]
        assert all(whole.startswith(one) for one, whole in pairs), (
            "a trial that was given up is the beginning of what it would have been"
        )
        dropped = manager.faults.dropped_trials
        assert num_faults <= dropped == manager.dropped.sum()
        assert dropped == len(short) or (manager.dropped.all() and b"" in short), (
            "with no slot left the last trials are not begun"
        )
    else:
        with pytest.raises(WorkerError) as caught:
            played(manager)
        assert manager.pids == [] and not isinstance(caught.value, EnvCrashLoopError)
        return str(caught.value)
    return ""

"""min_ready: exactly the trials that were started are played, and no round waits for the slowest slot."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig
from envs.base import Shard
from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.actors import RandomActor
from policies.collection.plans import WavePlan
from policies.collection.wave import Sink, run_wave
from tests.toys import ACTION_DIM, CountingConfig, CountingFamily, DelayedFamily
from utils.seeding import Phase

NUM_SLOTS = 4
STILL = np.zeros((NUM_SLOTS, ACTION_DIM), np.float32)
LAGGING = [(name, 1 if name == "asyncio" else 2) for name, kind in BACKENDS.items() if kind.can_lag]


def manage(**options: Any) -> ParallelEnvManager:
    """Four slots that never fall."""
    family = options.pop("family", CountingFamily(CountingConfig(falls=False)))
    return ParallelEnvManager(family, NUM_SLOTS, episodes_per_trial=2, **options)


class RowRecorder(Sink):
    """A sink that records which rows it was given."""

    def __init__(self) -> None:
        self.times: dict[int, list[int]] = {}
        self.obs: dict[int, list[bytes]] = {}
        self.lengths: list[int] = []

    def reserve(self, n: int) -> None: ...

    def write(
        self,
        trials: NDArray[np.int64],
        times: NDArray[np.int64],
        rows: Any,
        slots: NDArray[np.int64],
        actions: NDArray[Any],
        extras: Any,
    ) -> None:
        for trial, time, slot in zip(trials.tolist(), times.tolist(), slots.tolist(), strict=True):
            self.times.setdefault(trial, []).append(time)
            self.obs.setdefault(trial, []).append(rows.obs[slot].tobytes() + actions[slot].tobytes())

    def commit(self, lengths: NDArray[np.int64]) -> None:
        self.lengths = lengths.tolist()

    def discard(self, started: int) -> None: ...


def played(min_ready: int | None, name: str, workers: int) -> RowRecorder:
    """A wave of eleven trials."""
    recorder = RowRecorder()
    family = DelayedFamily(CountingConfig(max_episode_steps=5))
    with manage(
        family=family, num_workers=workers, backend=BackendConfig(name=name, min_ready=min_ready)
    ) as manager:
        plan = WavePlan.of_tasks(0, Phase.TRAIN, 0, np.random.default_rng(0).uniform(size=(11, 2)))
        run_wave(manager, RandomActor(manager.single_action_space), plan, sink=recorder)
    return recorder


@pytest.mark.parametrize(("name", "workers"), LAGGING)
def test_first_ready_plays_exactly_the_trials_that_were_started_row_by_row(name: str, workers: int) -> None:
    """Which slot steps when depends on time; with actions keyed by trial and row, the trials do not."""
    found, expected = played(1, name, workers), played(None, "serial", 1)
    assert sorted(found.times) == list(range(11)) and found.lengths == expected.lengths
    assert all(times == list(range(found.lengths[trial])) for trial, times in found.times.items())
    assert found.obs == expected.obs


@pytest.mark.parametrize(("name", "workers"), LAGGING)
def test_first_ready_does_not_wait_for_the_slowest(name: str, workers: int) -> None:
    class Slow(DelayedFamily):
        """A slot with the task 9 takes longer than all others together."""

        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            shard = super().make_shard(num_slots, threads)
            step = shard.step

            def stepping(slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
                if (shard.tasks[slots, 0] == 9.0).any():  # pyright: ignore[reportAttributeAccessIssue]
                    threading.Event().wait(0.4)
                step(slots, actions)

            shard.step = stepping  # pyright: ignore[reportAttributeAccessIssue]
            return shard

    if name == "asyncio":
        pytest.skip("a shard that blocks also blocks the event loop; its tests wait in coroutines instead")
    with manage(
        family=Slow(CountingConfig(falls=False)),
        num_workers=workers,
        backend=BackendConfig(name=name, min_ready=1),
    ) as manager:
        tasks = np.full((NUM_SLOTS, 2), 0.5)
        tasks[3] = 9.0
        manager.reset(tasks)
        seen = np.zeros(NUM_SLOTS, int)
        while not seen[3]:
            seen += manager.step(STILL).valid
        assert (seen[:2] >= 3).all(), "the quick ones went on"


def test_what_first_ready_excludes_is_refused() -> None:
    def config(name: str, min_ready: int = 1) -> BackendConfig:
        return BackendConfig(name=name, min_ready=min_ready)

    with pytest.raises(ValueError, match="deterministic=true refuses it"):
        manage(deterministic=True, backend=config("thread"))
    with pytest.raises(ValueError, match="min_ready has no meaning on backend=serial; it works on process"):
        manage(backend=config("serial"))
    with pytest.raises(ValueError, match="exclude each other"):
        manage(backend=config("thread"), num_groups=2)
    with pytest.raises(ValueError, match="can never be reached with 4 slots"):
        manage(backend=config("thread", 5))
    with pytest.raises(
        ValueError, match="num_groups=3 needs a slot of every group in each of 2 workers: 6 slots, not 4"
    ):
        manage(backend=BackendConfig(name="thread"), num_groups=3, num_workers=2)

"""The limits of a Stepper: a second thread, slow slots with `min_ready`, and workers that grow too large.

With `min_ready` exactly the trials that were started are played, and no round waits for the slowest slot.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig
from envs.base import Shard
from envs.manager.limits import MEMORY_CHECK_S, MemoryLimit, OneThread
from envs.manager.recovery import WorkerError
from envs.parallel_env_manager import ParallelEnvManager
from policies.collection.actors import RandomActor
from policies.collection.wave import Sink, WavePlan, run_wave
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

    def discard(self) -> None: ...


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


# -- one thread ----------------------------------------------------------------------------------------------


def in_another_thread(turn: OneThread) -> str:
    """What another thread gets that tries to come in."""
    answers: list[str] = []

    def come_in() -> None:
        try:
            with turn:
                answers.append("in")
        except RuntimeError as error:
            answers.append(str(error))

    thread = threading.Thread(target=come_in)
    thread.start()
    thread.join()
    return answers[0]


def test_a_second_thread_is_refused_while_the_first_is_inside() -> None:
    turn = OneThread()
    with turn:
        assert in_another_thread(turn).startswith("Another thread is in the middle of a call")
    assert in_another_thread(turn) == "in"


def test_after_the_end_no_thread_gets_in() -> None:
    turn = OneThread()
    turn.closed = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="The manager is closed"), turn:
            pass
    assert in_another_thread(turn) == "The manager is closed."


def test_the_end_waits_for_the_thread_inside_and_not_for_its_own() -> None:
    turn = OneThread()
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with turn:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(30)
    assert not turn.wait_until_free(0.01), "it is still inside"
    leave.set()
    assert turn.wait_until_free(30)
    turn.leave()
    thread.join()
    with turn:
        assert not turn.wait_until_free(30), "at once: this thread cannot wait for itself"


# -- the memory of workers -----------------------------------------------------------------------------------


class OneProcess:
    """A backend whose only worker is this very process."""

    def processes(self) -> dict[int, tuple[int, ...]]:
        return {os.getpid(): (0, 1)}


def limit_of(limit: int | None, times: list[float]) -> MemoryLimit:
    """A limit whose clock shows these times, one after the other."""
    backend: Any = OneProcess()
    return MemoryLimit(backend, limit, now=iter(times).__next__)


def test_a_worker_beyond_the_limit_is_reported_with_its_slots() -> None:
    (worker,) = limit_of(1, [0.0, 0.0, 0.0]).grown()
    assert worker.slots.tolist() == [0, 1]
    assert worker.sentence.startswith("The worker of slots 0, 1 takes ")
    assert worker.sentence.endswith(" MB, and backend.max_worker_memory=1 is its limit.")


def test_memory_is_measured_now_and_then_only() -> None:
    limit = limit_of(1, [0.0, 0.0, 0.0, 0.5, MEMORY_CHECK_S, MEMORY_CHECK_S])
    assert [len(limit.grown()) for _ in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("limit", [None, 10**9])
def test_without_a_limit_or_below_it_there_is_nothing_to_report(limit: int | None) -> None:
    memory = limit_of(limit, [0.0, 0.0, 0.0])
    assert memory.grown() == []
    memory.check_rebuilt()


def test_a_limit_that_a_new_worker_exceeds_is_refused() -> None:
    with pytest.raises(WorkerError, match="It has only just been built anew, so a larger limit is needed"):
        limit_of(1, [0.0]).check_rebuilt()

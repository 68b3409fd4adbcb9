"""Recovery: after a fault the data is that of a run without it, or the trial is given up openly, or the run stops with one named error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, OnFault
from envs.base import Shard, TaskFamily
from envs.parallel_env_manager import EnvCrashLoopError, ParallelEnvManager, WorkerError
from policies.rollout import Plan, RandomActor, run_wave
from tests.streams import stream_hash, trial_streams
from tests.toys import ACTION_DIM, CountingFamily, FaultyFamily
from utils.seeding import Phase

NUM_SLOTS, NUM_TRIALS = 5, 9
FALLING = {"falls": True, "max_episode_steps": 6}
ONE_EACH = [(name, 1 if name in ("serial", "asyncio") else 2) for name in BACKENDS]


def manage(
    family: TaskFamily, name: str = "serial", workers: int = 1, *, groups: int = 1, deterministic: bool = False, **options: Any
) -> ParallelEnvManager:
    """Five slots, three episodes per trial."""
    config = BackendConfig(name=name, threads=1 if name in ("serial", "thread") else None, **options)
    return ParallelEnvManager(
        family, NUM_SLOTS, episodes_per_trial=3, num_workers=workers, num_groups=groups, deterministic=deterministic, backend=config
    )


def faulty(tmp_path: Path, fault: str = "raise", times: int = 1, **options: Any) -> FaultyFamily:
    """A family that fails so often and then behaves."""
    return FaultyFamily(**FALLING, fault=fault, times=times, folder=str(tmp_path), **options)


def failures(tmp_path: Path) -> int:
    """How often it has failed."""
    return len(list(tmp_path.glob("failure-*")))


def fault_free(groups: int = 1) -> str:
    """The hash without any fault."""
    with manage(FaultyFamily(**FALLING, where="nowhere"), groups=groups) as manager:
        return stream_hash(manager, NUM_TRIALS)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize("fault", ["raise", "slot_error", "nan_obs", "inf_obs", "nan_reward", "unpicklable", "speechless"])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_after_restarts_the_data_is_that_of_a_run_without_faults(
    name: str, workers: int, fault: str, where: str, groups: int, tmp_path: Path
) -> None:
    with manage(faulty(tmp_path, fault, times=2, where=where, at=3), name, workers, groups=groups) as manager:
        assert stream_hash(manager, NUM_TRIALS) == fault_free(groups)
        assert failures(tmp_path) == 2 and manager.faults.restarts >= 1 and not manager.faults.dropped


def test_the_equality_above_can_fail(tmp_path: Path) -> None:
    """Dropping instead of re-running changes the data, and the hash sees it."""
    with manage(faulty(tmp_path, "slot_error", times=1, at=3), on_fault=OnFault.drop) as manager:
        assert stream_hash(manager, NUM_TRIALS) != fault_free()
        assert manager.faults.dropped_trials == 1


def test_a_shard_that_cannot_be_built_again_at_first_is_tried_once_more(tmp_path: Path) -> None:
    class Twice(FaultyFamily):
        """Fails at step 3 once, and then at being built once."""

        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            if failures(tmp_path) == 1:
                (tmp_path / "failure-1").touch()
                raise ValueError("not yet")
            return super().make_shard(num_slots, threads)

    with manage(Twice(**FALLING, fault="raise", at=3, times=1, folder=str(tmp_path))) as manager:
        assert stream_hash(manager, NUM_TRIALS) == fault_free()
        assert failures(tmp_path) == 2


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_what_fails_at_every_attempt_ends_in_one_error_that_says_so(name: str, workers: int, where: str, tmp_path: Path) -> None:
    manager = manage(faulty(tmp_path, "slot_error", times=0, where=where, at=3), name, workers)
    with pytest.raises(EnvCrashLoopError, match="the toy is broken") as caught:
        stream_hash(manager, NUM_TRIALS)
    text = str(caught.value)
    assert "It failed 3 times at this place: restarting it does not help." in text and "trial seed" in text and "in go_wrong" in text
    with pytest.raises(RuntimeError, match="closed"):
        manager.reset()


def test_too_many_faults_in_a_short_time_stop_the_run(tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "slot_error", times=50, at=1), fault_budget=1) as manager, pytest.raises(EnvCrashLoopError, match="fault_budget=1"):
        stream_hash(manager, NUM_TRIALS)


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_raise_stops_at_the_first_fault_and_names_it(name: str, workers: int, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "slot_error", at=3), name, workers, on_fault=OnFault["raise"]) as manager:
        with pytest.raises(WorkerError, match="the toy is broken") as caught:
            stream_hash(manager, NUM_TRIALS)
        assert not isinstance(caught.value, EnvCrashLoopError) and failures(tmp_path) == 1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_drop_gives_up_the_failing_trial_alone_and_counts_it(name: str, workers: int, groups: int, tmp_path: Path) -> None:
    """The others are those of a run without faults, even where they shared a shard with the one that failed."""
    plan = Plan(0, Phase.TRAIN, 0, np.linspace(0.1, 0.9, NUM_TRIALS)[:, None] * np.ones(2))
    with manage(FaultyFamily(**FALLING, where="nowhere"), groups=groups) as manager:
        expected = run_wave(manager, RandomActor(manager.single_action_space), plan)
    family = faulty(tmp_path, "slot_error", at=1, task_above=0.75)
    with manage(family, name, workers, groups=groups, on_fault=OnFault.drop) as manager:
        found = run_wave(manager, RandomActor(manager.single_action_space), plan)
        assert found.dropped.sum() == 1 and plan.tasks[found.dropped][0, 0] > 0.75
        assert manager.faults.dropped == {tuple(plan.tasks[found.dropped][0].tolist()): 1}
    assert np.isnan(found.returns[found.dropped]).all()
    np.testing.assert_array_equal(found.returns[~found.dropped], expected.returns[~found.dropped])


class DriftingFamily(FaultyFamily):
    """Fails once, and is not deterministic: no episode is paid like the one before."""

    age = 0.0

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        shard = super().make_shard(num_slots, threads)
        step = shard.step

        def drifting(slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
            step(slots, actions)
            self.age += 1.0
            shard.rows.reward[slots] += self.age

        shard.step = drifting  # pyright: ignore[reportAttributeAccessIssue]
        return shard


def test_an_environment_that_is_not_deterministic_is_named_and_its_trials_are_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    family = DriftingFamily(**FALLING, fault="slot_error", at=3, times=1, folder=str(tmp_path))
    with manage(family) as manager:
        streams = trial_streams(manager, NUM_TRIALS)
        assert manager.faults.dropped_trials > 0
    assert "is not deterministic: re-running the trial of slot" in caplog.text
    assert len(streams) == NUM_TRIALS


def test_deterministic_runs_stop_there_and_refuse_to_drop(tmp_path: Path) -> None:
    family = DriftingFamily(**FALLING, fault="slot_error", at=3, times=1, folder=str(tmp_path))
    with manage(family, deterministic=True) as manager, pytest.raises(WorkerError, match="deterministic=true cannot be kept"):
        trial_streams(manager, NUM_TRIALS)
    with pytest.raises(ValueError, match="on_fault=drop gives trials up"):
        manage(CountingFamily(), deterministic=True, on_fault=OnFault.drop)


def test_remotes_live_through_a_fault_of_a_neighbour(tmp_path: Path) -> None:
    family = faulty(tmp_path, "slot_error", at=2, task_above=5.0)
    with manage(family) as manager:
        tasks = np.full((NUM_SLOTS, 2), 0.5)
        tasks[3, 0] = 9.0
        manager.reset(tasks, list(range(NUM_SLOTS)))
        still = np.zeros(ACTION_DIM, np.float32)
        manager.remotes[0].send(("step", still))
        for _ in range(3):
            manager.remotes[3].send(("step", still))
            manager.remotes[3].recv()
        assert manager.remotes[0].recv()[4]["t"] == 1.0 and failures(tmp_path) == 1
        assert manager.rows.info[3, 0] == 3.0 and manager.rows.info[1, 0] == 0.0

"""Recovery: after a fault the data is unchanged, or the trial is given up openly, or the run stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, OnFault
from envs.base import Rows, Shard, SlotError, TaskFamily
from envs.parallel_env_manager import EnvCrashLoopError, ParallelEnvManager, Start, WorkerError
from policies.collection.actors import RandomActor
from policies.collection.wave import WavePlan, run_wave
from tests.streams import stream_hash, trial_streams
from tests.toys import ACTION_DIM, CountingFamily, CountingShard
from tests.toys_faulty import FaultyFamily
from utils.seeding import Phase

NUM_SLOTS, NUM_TRIALS = 5, 9
FALLING = {"falls": True, "max_episode_steps": 6}
ONE_EACH = [(name, 1 if name in ("serial", "asyncio") else 2) for name in BACKENDS]


def manage(
    family: TaskFamily,
    name: str = "serial",
    workers: int = 1,
    *,
    groups: int = 1,
    deterministic: bool = False,
    **options: Any,
) -> ParallelEnvManager:
    """Five slots, three episodes per trial."""
    config = BackendConfig(name=name, threads=1 if name in ("serial", "thread") else None, **options)
    return ParallelEnvManager(
        family,
        NUM_SLOTS,
        episodes_per_trial=3,
        num_workers=workers,
        num_groups=groups,
        deterministic=deterministic,
        backend=config,
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
@pytest.mark.parametrize(
    "fault", ["raise", "slot_error", "nan_obs", "inf_obs", "nan_reward", "unpicklable", "speechless"]
)
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
def test_what_fails_at_every_attempt_ends_in_one_error_that_says_so(
    name: str, workers: int, where: str, tmp_path: Path
) -> None:
    manager = manage(faulty(tmp_path, "slot_error", times=0, where=where, at=3), name, workers)
    with pytest.raises(EnvCrashLoopError, match="the toy is broken") as caught:
        stream_hash(manager, NUM_TRIALS)
    text = str(caught.value)
    assert (
        "It failed 3 times at this place: restarting it does not help." in text
        and "trial seed" in text
        and "in go_wrong" in text
    )
    with pytest.raises(RuntimeError, match="closed"):
        manager.reset()


def test_too_many_faults_in_a_short_time_stop_the_run(tmp_path: Path) -> None:
    with (
        manage(faulty(tmp_path, "slot_error", times=50, at=1), fault_budget=1) as manager,
        pytest.raises(EnvCrashLoopError, match="fault_budget=1"),
    ):
        stream_hash(manager, NUM_TRIALS)


@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_raise_stops_at_the_first_fault_and_names_it(name: str, workers: int, tmp_path: Path) -> None:
    with manage(faulty(tmp_path, "slot_error", at=3), name, workers, on_fault=OnFault["raise"]) as manager:
        with pytest.raises(WorkerError, match="the toy is broken") as caught:
            stream_hash(manager, NUM_TRIALS)
        assert not isinstance(caught.value, EnvCrashLoopError) and failures(tmp_path) == 1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("name", "workers"), ONE_EACH)
def test_drop_gives_up_the_failing_trial_alone_and_counts_it(
    name: str, workers: int, groups: int, tmp_path: Path
) -> None:
    """The other trials are those of a run without faults, even in the same shard."""
    tasks = np.linspace(0.1, 0.9, NUM_TRIALS)[:, None] * np.ones(2)
    plan = WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks)
    with manage(FaultyFamily(**FALLING, where="nowhere"), groups=groups) as manager:
        expected = run_wave(manager, RandomActor(manager.single_action_space), plan)
    family = faulty(tmp_path, "slot_error", at=1, task_above=0.75)
    with manage(family, name, workers, groups=groups, on_fault=OnFault.drop) as manager:
        found = run_wave(manager, RandomActor(manager.single_action_space), plan)
        assert found.dropped.sum() == 1 and tasks[found.dropped][0, 0] > 0.75
        assert manager.faults.dropped == {tuple(tasks[found.dropped][0].tolist()): 1}
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


def test_an_environment_that_is_not_deterministic_is_named_and_its_trials_are_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    family = DriftingFamily(**FALLING, fault="slot_error", at=3, times=1, folder=str(tmp_path))
    with manage(family) as manager:
        streams = trial_streams(manager, NUM_TRIALS)
        assert manager.faults.dropped_trials > 0
    assert "is not deterministic: re-running the trial of slot" in caplog.text
    assert len(streams) == NUM_TRIALS


def test_deterministic_runs_stop_there_and_refuse_to_drop(tmp_path: Path) -> None:
    family = DriftingFamily(**FALLING, fault="slot_error", at=3, times=1, folder=str(tmp_path))
    with (
        manage(family, deterministic=True) as manager,
        pytest.raises(WorkerError, match="deterministic=true cannot be kept"),
    ):
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


class CueFamily(FaultyFamily):
    """Fails once; what its reset shows is drawn anew every time, and no later row tells it."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        shard = super().make_shard(num_slots, threads)
        reset = shard.reset

        def resetting(
            slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
        ) -> None:
            reset(slots, tasks, seeds)
            assert isinstance(shard.rows.obs, np.ndarray)
            shard.rows.obs[slots, 4] = np.random.default_rng().random(len(slots))

        shard.reset = resetting  # pyright: ignore[reportAttributeAccessIssue]
        return shard


def test_a_row_long_ago_that_comes_out_differently_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent remembers a cue of the start row, so that the last row alone does not decide."""
    with manage(CueFamily(**FALLING, fault="slot_error", at=3, times=1, folder=str(tmp_path))) as manager:
        trial_streams(manager, NUM_TRIALS)
        assert manager.faults.dropped_trials > 0 and "is not deterministic" in caplog.text


def test_a_slot_that_was_dropped_does_not_touch_the_next_wave(tmp_path: Path) -> None:
    """The next wave has fewer trials than slots, so that the slot stays empty."""
    actor = RandomActor(CountingFamily().spec.action_space)
    tasks = np.full((NUM_SLOTS, 2), 0.5)
    tasks[-1] = 0.9
    with manage(faulty(tmp_path, "slot_error", at=2, task_above=0.8), on_fault=OnFault.drop) as manager:
        first = run_wave(manager, actor, WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks))
        assert first.dropped.tolist() == [False] * (NUM_SLOTS - 1) + [True]
        second = run_wave(manager, actor, WavePlan.of_tasks(0, Phase.TRAIN, 0, tasks[:2]))
        assert not second.dropped.any() and np.isfinite(second.returns).all()


class ArmedFamily(CountingFamily):
    """Fails at the next step whenever a test has armed it."""

    def __init__(self, trigger: Path) -> None:
        super().__init__()
        self._trigger = trigger

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        shard, trigger = super().make_shard(num_slots, threads), self._trigger
        step = shard.step

        def stepping(slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
            step(slots, actions)
            if trigger.exists():
                trigger.unlink()
                raise SlotError(int(slots[0]), "armed")

        shard.step = stepping  # pyright: ignore[reportAttributeAccessIssue]
        return shard


def test_failures_at_the_same_place_of_trials_that_went_on_are_no_crash_loop(tmp_path: Path) -> None:
    """Evaluations repeat the same trials; each failure was cured, so they are no crash loop together."""
    with manage(ArmedFamily(tmp_path / "armed"), fault_budget=100) as manager:
        for number in range(1, 5):
            manager.reset(np.full((NUM_SLOTS, 2), 0.5), list(range(NUM_SLOTS)))
            (tmp_path / "armed").touch()
            manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32))
            assert manager.faults.restarts == number


def test_an_interrupted_step_is_owed_and_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C in a serial step the environments may be anywhere, so they are built anew."""
    with manage(CountingFamily(), groups=2) as manager:
        manager.reset(np.full((NUM_SLOTS, 2), 0.05), list(range(NUM_SLOTS)))
        still, interrupted = np.zeros((NUM_SLOTS, ACTION_DIM), np.float32), [True]
        step = CountingShard.step

        def interrupting(shard: CountingShard, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
            step(shard, slots, actions)
            if interrupted.pop() if interrupted else False:
                raise KeyboardInterrupt

        monkeypatch.setattr(CountingShard, "step", interrupting)
        with pytest.raises(KeyboardInterrupt):
            manager.step(still)
        with pytest.raises(RuntimeError, match=r"recv\(\) it first, or abandon\(\) all trials"):
            manager.step(still)
        for slot in range(NUM_SLOTS):
            assert manager.remotes[slot].recv()[4]["t"] == 1.0
        assert manager.step(still).info[:, 0].tolist() == [2.0] * NUM_SLOTS


def test_a_start_in_a_slot_that_owes_an_answer_is_refused() -> None:
    with manage(CountingFamily(), "thread", 2, min_ready=1) as manager:
        manager.reset()
        manager.remotes[2].send(("step", np.zeros(ACTION_DIM)))
        with pytest.raises(RuntimeError, match=r"Slots \[2\] still owe an answer"):
            manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32), {2: Start(np.zeros(2), 1)})
        assert manager.remotes[2].recv()[4]["t"] == 1.0


def test_a_reward_beyond_float32_is_no_number() -> None:
    class Rich(CountingFamily):
        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            shard = super().make_shard(num_slots, threads)
            step = shard.step

            def paying(slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
                step(slots, actions)
                shard.rows.reward[slots[0]] = 1e39

            shard.step = paying  # pyright: ignore[reportAttributeAccessIssue]
            return shard

    with manage(Rich(), on_fault=OnFault["raise"]) as manager:
        manager.reset()
        with pytest.raises(WorkerError, match=r"slot 0 .* the reward is not finite \(in float32\): 1e\+39"):
            manager.step(np.zeros((NUM_SLOTS, ACTION_DIM), np.float32))


def test_a_traceback_is_shown_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def arm(trial: int, row: int, rows: Rows, action: NDArray[np.float32]) -> None:
        if trial % 3 == 1 and row == 2:
            (tmp_path / "armed").touch()

    with manage(ArmedFamily(tmp_path / "armed"), fault_budget=100) as manager:
        stream_hash(manager, NUM_TRIALS, tamper=arm)
        assert manager.faults.restarts >= 2
        assert (
            caplog.text.count("The environment of slot") == manager.faults.restarts
            and caplog.text.count("Traceback") == 1
        )

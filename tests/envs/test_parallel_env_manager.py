"""ParallelEnvManager: tasks and seeds per slot, restarts in the same message, remotes, faults, the end."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from envs.backends.base import BackendConfig, OnFault
from envs.parallel_env_manager import ParallelEnvManager, Start, TrialDroppedError, WorkerError
from tests.toys import CountingConfig, CountingFamily, DictCountingFamily
from tests.toys_faulty import FaultyFamily

STILL = np.zeros((4, 2), np.float32)


@pytest.fixture(params=[1, 2], ids=["serial", "process"])
def manager(request: pytest.FixtureRequest):
    family = CountingFamily(CountingConfig(max_episode_steps=4, falls=False))
    with ParallelEnvManager(family, 4, episodes_per_trial=2, num_workers=request.param, seed=0) as made:
        yield made
    # Rows stay mapped as long as something refers to them, and pytest does until after the leak check.
    request.node.funcargs.clear()


def test_every_slot_is_reset_to_its_own_task_and_seed(manager: ParallelEnvManager) -> None:
    tasks = np.arange(8).reshape(4, 2) / 10
    rows = manager.reset(tasks, seeds=[7, 7, 8, 9])
    assert rows.task.tolist() == tasks.tolist() and rows.valid.all()
    assert isinstance(rows.obs, np.ndarray)
    np.testing.assert_array_equal(rows.obs[:, :2], tasks.astype(np.float32))
    assert rows.obs[0, 2] == rows.obs[1, 2] != rows.obs[2, 2], "the same seed, the same episode"


def test_some_slots_are_reset_while_the_others_keep_their_trial(manager: ParallelEnvManager) -> None:
    manager.reset()
    manager.step(STILL)
    rows = manager.reset(tasks=[[0.9, 0.9], [0.8, 0.8]], seeds=[1, 2], slots=[2, 0])
    assert isinstance(rows.obs, np.ndarray)
    assert rows.obs[:, 3].tolist() == [0, 1, 0, 1], "time in the episode"
    assert rows.task[0].tolist() == [0.8, 0.8] and rows.task[2].tolist() == [0.9, 0.9], (
        "slots may come in any order"
    )


def test_a_slot_starts_its_next_trial_in_the_message_in_which_the_others_step(
    manager: ParallelEnvManager,
) -> None:
    manager.reset()
    for _ in range(3):
        manager.step(STILL)
    rows = manager.step(STILL, starts={1: Start(np.array([0.5, 0.5]), seed=3)})
    assert isinstance(rows.obs, np.ndarray)
    assert rows.obs[:, 3].tolist() == [4, 0, 4, 4]
    assert rows.trial_start.tolist() == [False, True, False, False]
    assert rows.task[1].tolist() == [0.5, 0.5] and rows.reward[1] == 0


def test_a_slot_whose_trial_is_over_waits(manager: ParallelEnvManager) -> None:
    rows = manager.reset(slots=[0, 3])
    for _ in range(2 * 5 - 1):
        rows = manager.step(STILL)
    assert rows.valid.tolist() == [True, False, False, True] and rows.trial_end[0]
    assert not manager.running.any()
    assert not manager.step(STILL).valid.any()


def test_the_action_at_the_end_of_an_episode_is_ignored(manager: ParallelEnvManager) -> None:
    manager.reset()
    for _ in range(4):
        manager.step(STILL)
    rows = manager.step(STILL + 1)
    assert rows.episode_start.all() and not rows.prev_action.any() and not rows.reward.any()
    assert isinstance(rows.obs, np.ndarray) and not rows.obs[:, 4].any(), "no action has moved anything"


def test_wrong_calls_are_refused_in_one_sentence(manager: ParallelEnvManager) -> None:
    manager.reset()
    with pytest.raises(ValueError, match=r"shape \(4, 2\), one per slot"):
        manager.step(STILL[:3])
    with pytest.raises(ValueError, match="3 tasks for 4 slots"):
        manager.reset(tasks=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="2 seeds for 4 slots"):
        manager.reset(seeds=[1, 2])
    with pytest.raises(ValueError, match="different numbers from 0 to 3"):
        manager.reset(slots=[0, 0])
    with pytest.raises(ValueError, match="vector of 2 numbers"):
        manager.reset(tasks=np.zeros((4, 3)))
    with pytest.raises(ValueError, match="finite task"):
        manager.remotes[0].send(("reset", {"task": [np.nan, 0.0]}))
    with pytest.raises(ValueError, match="seed from 0"):
        manager.remotes[0].send(("reset", {"seed": -1}))


def test_remotes_speak_to_one_slot_each(manager: ParallelEnvManager) -> None:
    """The example of the README: send returns at once, and each has one recv."""
    task = np.array([0.2, 0.4])
    manager.remotes[0].send(("reset", {"task": task, "seed": 5}))
    manager.remotes[3].send(("reset", {"task": task * 2}))
    manager.remotes[1].send(("reset", {}))
    obs, reward, terminated, truncated, info = manager.remotes[3].recv()
    assert obs[:2].tolist() == (task * 2).astype(np.float32).tolist()
    assert (reward, terminated, truncated) == (0.0, False, False) and info["trial_start"]
    obs, *_ = manager.remotes[0].recv()
    assert obs[:2].tolist() == task.astype(np.float32).tolist()
    manager.remotes[1].recv()
    seen = []
    for _ in range(2 * 5 - 1):
        manager.remotes[0].send(("step", np.array([0.1, 0.0])))
        seen.append(manager.remotes[0].recv())
    assert [step[4]["episode_start"] for step in seen] == [False] * 4 + [True] + [False] * 4
    assert seen[-1][4]["trial_end"] and seen[-1][3]
    with pytest.raises(RuntimeError, match="Slot 0 has no running trial"):
        manager.remotes[0].send(("step", np.zeros(2)))


def test_each_send_owes_one_recv(manager: ParallelEnvManager) -> None:
    manager.remotes[0].send(("reset", {}))
    with pytest.raises(RuntimeError, match="still owe an answer"):
        manager.remotes[0].send(("reset", {}))
    with pytest.raises(RuntimeError, match="still owe an answer"):
        manager.step(STILL)
    manager.remotes[0].recv()
    with pytest.raises(RuntimeError, match="sent nothing"):
        manager.remotes[0].recv()
    with pytest.raises(ValueError, match="'reset' and 'step'"):
        manager.remotes[0].send(("jump", None))
    with pytest.raises(ValueError, match="'task' and 'seed'"):
        manager.remotes[0].send(("reset", {"tsak": 1}))


@pytest.mark.parametrize(("workers", "fault"), [(1, "raise"), (2, "exit")])
def test_a_slot_whose_trial_was_given_up_has_no_answer_until_it_is_reset(
    workers: int, fault: str, tmp_path: Path
) -> None:
    family = FaultyFamily(fault=fault, at=1, task_above=5.0, times=1, folder=str(tmp_path))
    backend = BackendConfig(on_fault=OnFault.drop)
    with ParallelEnvManager(family, 4, num_workers=workers, backend=backend) as manager:
        manager.reset(tasks=[[7.0, 0.0]] * 2 + [[0.0, 0.0]] * 2)
        for slot in (0, 1, 3):
            manager.remotes[slot].send(("step", np.zeros(2)))
        given_up = [0, 1] if fault == "exit" else [0]
        # The first `recv` learns it for all slots that shared the worker: none of them owes anything now.
        for slot in given_up:
            with pytest.raises(
                TrialDroppedError, match=rf"The trial of slot {slot} was given up after a fault"
            ):
                manager.remotes[slot].recv()
            assert manager.info_of(slot)["dropped"] and not manager.info_of(slot)["valid"]
        info = manager.remotes[3].recv()[4]
        assert info["valid"] and not info["dropped"] and np.flatnonzero(manager.dropped).tolist() == given_up
        with pytest.raises(RuntimeError, match="Slot 0 has no running trial"):
            manager.remotes[0].send(("step", np.zeros(2)))
        manager.remotes[0].send(("reset", {"task": [0.0, 0.0]}))
        assert manager.remotes[0].recv()[4]["trial_start"]
        manager.remotes[0].send(("step", np.zeros(2)))
        assert manager.remotes[0].recv()[0][3] == 1.0


def test_slots_of_several_factories_carry_a_label() -> None:
    short, long = (
        partial(CountingFamily, CountingConfig(max_episode_steps=9, falls=falls)) for falls in (True, False)
    )
    with ParallelEnvManager(
        [short, short, long, short], num_workers=2, episodes_per_trial=1, seed=0
    ) as manager:
        rows = manager.reset()
        assert rows.label.tolist() == [0, 0, 1, 0]
        falls = np.zeros(4, bool)
        while manager.running.any():
            rows = manager.step(STILL)
            falls |= rows.terminated & rows.valid
        assert not falls[2] and falls.any()


def test_factories_must_agree_on_their_spaces() -> None:
    with pytest.raises(ValueError, match="disagree on obs_space"):
        ParallelEnvManager([CountingFamily, DictCountingFamily])
    with pytest.raises(ValueError, match="num_envs"):
        ParallelEnvManager(CountingFamily())
    with pytest.raises(ValueError, match="between 1 and the number of slots, 2"):
        ParallelEnvManager(CountingFamily(), 2, num_workers=3)


def test_spaces_contain_the_rows(manager: ParallelEnvManager) -> None:
    rows = manager.reset()
    assert manager.observation_space.contains(rows.obs)
    assert isinstance(rows.obs, np.ndarray) and manager.single_observation_space.contains(rows.obs[0])
    assert manager.action_space.contains(STILL)


def test_it_closes_twice_at_the_end_of_a_block_and_when_forgotten() -> None:
    manager = ParallelEnvManager(CountingFamily(), 2, num_workers=2)
    manager.close()
    manager.close()
    with pytest.raises(RuntimeError, match="closed"):
        manager.reset()
    forgotten = ParallelEnvManager(CountingFamily(), 2, num_workers=2)
    processes = forgotten._backend
    slot = forgotten.remotes[0]
    del forgotten, slot
    assert list(processes.processes()) == [], "at once, without waiting for the garbage collector"


def test_a_late_answer_is_one_named_error_and_everything_is_closed() -> None:
    family = FaultyFamily(fault="sleep")
    manager = ParallelEnvManager(family, 2, num_workers=2, backend=BackendConfig(call_timeout_s=0.3), seed=0)
    with pytest.raises(WorkerError, match=r"slot \d.*task .*no answer within 0.3 s"):
        manager.reset(seeds=[11, 12])
        for _ in range(20):
            manager.step(STILL[:2])
    with pytest.raises(RuntimeError, match="closed"):
        manager.reset()

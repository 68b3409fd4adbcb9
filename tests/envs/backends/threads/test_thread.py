"""The thread backend when environments hang: a thread is left behind, its rows with it, and a new one takes
its place.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from envs.base import Shard
from tests.toys import CountingFamily
from tests.toys_async import Driver, Gate, Hook, HookedFamily

SLOTS = 6


def drive(hook: Hook, *, workers: int = 2, groups: int = 1, coroutines: bool = False) -> Driver:
    return Driver(
        "thread",
        HookedFamily(hook, coroutines=coroutines),
        SLOTS,
        workers=workers,
        groups=groups,
        close_timeout_s=0.2,
    )


def threads_now() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("environments of thread")]


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()


def test_a_thread_that_hangs_is_told_with_its_stack_and_loses_its_slots_only() -> None:
    gate = Gate(task_above=4.5)
    with drive(gate) as driver:
        driver.reset()
        driver.call()
        ghost = threads_now()[1]
        ready, (fault,) = driver.call_late([3, 4, 5])
        assert ready == [0, 1, 2] and fault.slots == fault.lost == (3, 4, 5)
        assert fault.sentence == "gave no answer within 0.2 s"
        assert "in step" in fault.traceback and "self.opened.wait()" in fault.traceback
        again, (same,) = driver.call(timeout=60.0)
        assert again == [0, 1, 2] and same is fault, "posted without a restore: told at once"
        assert driver.backend.restore(np.array([3, 4, 5]), 60.0) == []
        assert driver.call([3, 4, 5], reset=True) == ([3, 4, 5], [])
        assert driver.times == [3.0, 3.0, 3.0, 0.0, 0.0, 0.0]
        gate.opened.set()
        join([ghost])
        assert driver.call()[1] == []


def test_an_answer_after_the_deadline_is_dropped_and_writes_nowhere() -> None:
    gate, closed = Gate(task_above=4.5), list[float]()

    def hook(where: str, t: int, task: float) -> None:
        gate(where, t, task)
        if where == "close":
            closed.append(task)

    with drive(hook) as driver:
        driver.reset()
        driver.call()
        ghost = threads_now()[1]
        driver.call_late([3, 4, 5])
        driver.backend.restore(np.array([3, 4, 5]), 60.0)
        driver.call([3, 4, 5], reset=True)
        before = driver.backend.rows.copy()
        gate.opened.set()
        join([ghost])
        assert closed == [3.0, 4.0, 5.0], "it closes what it had"
        np.testing.assert_array_equal(driver.backend.rows.obs, before.obs)
        np.testing.assert_array_equal(driver.backend.rows.info, before.info)
        assert driver.call() == (driver.slots.tolist(), [])
        assert driver.backend.dropped == 1  # pyright: ignore[reportAttributeAccessIssue]
        assert driver.times == [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]


def test_both_groups_of_a_thread_are_lost_when_it_hangs_in_one() -> None:
    gate = Gate(task_above=4.5)
    with drive(gate, groups=2) as driver:  # thread 0 has slots 0 and 3, thread 1 the others
        driver.reset()
        driver.call()
        driver.post([3, 4, 5])
        driver.post([0, 1, 2])
        assert gate.entered.wait(60.0)
        ready, (fault,) = driver.backend.wait(np.array([0, 1, 2]), 0.2)
        assert ready.tolist() == [0] and fault.slots == (4, 5) and fault.lost == (1, 2, 4, 5)
        assert driver.backend.wait(np.array([3]), 60.0)[0].tolist() == [3]
        gate.opened.set()
        assert driver.backend.restore(np.array(fault.lost), 60.0) == []
        assert driver.call(fault.lost, reset=True) == ([1, 2, 4, 5], [])


def test_one_group_that_raises_leaves_the_other_of_its_thread_pending() -> None:
    def hook(where: str, t: int, task: float) -> None:
        if where == "step" and task == 1.0:
            raise ValueError("odd")

    with drive(hook, workers=1, groups=2) as driver:
        driver.reset()
        driver.post([0, 1, 2])
        driver.post([3, 4, 5])
        ready, (fault,) = driver.backend.wait(np.array([0, 1, 2]), 60.0)
        assert len(ready) == 0 and fault.lost == (0, 1, 2)
        assert driver.backend.wait(np.array([3, 4, 5]), 60.0)[0].tolist() == [3, 4, 5]
        assert driver.backend.restore(np.array([0, 1, 2]), 60.0) == []
        assert driver.call([0, 1, 2], reset=True)[1] == []


def test_min_ready_goes_on_without_the_slowest_thread_until_its_deadline() -> None:
    gate = Gate(task_above=4.5, at=0)
    with drive(gate) as driver:
        driver.reset()
        driver.post()
        ready, faults = driver.backend.wait(driver.slots, 0.5, min_ready=1)
        assert ready.tolist() == [0, 1, 2] and not faults
        while not faults:  # the others are always ready: the slow one is cut off all the same
            driver.post([0, 1, 2])
            ready, faults = driver.backend.wait(driver.slots, 0.5, min_ready=3)
            assert faults or ready.tolist() == [0, 1, 2]
        assert faults[0].lost == (3, 4, 5)
        gate.opened.set()
        assert driver.backend.restore(np.array([3, 4, 5]), 60.0) == []
        assert driver.backend.wait(driver.post([3, 4, 5], reset=True), 60.0, min_ready=1)[0].tolist() == [
            3,
            4,
            5,
        ]


def test_building_and_drawing_have_deadlines_too() -> None:
    gate = Gate(task_above=-1.0, at=0)
    places = ["render"]

    def hook(where: str, t: int, task: float) -> None:
        if where in places:
            gate("step", 0, task)

    with drive(hook) as driver:
        driver.reset()
        with pytest.raises(
            RuntimeError, match=r"slot 1 could not be drawn: the environment gave no answer within 0.1 s"
        ):
            driver.backend.render(1, 0.1)
        places[0] = "make_shard"
        (fault,) = driver.backend.restore(np.array([0, 1, 2]), 0.1)
        assert fault.lost == (0, 1, 2) and "make_shard" in fault.traceback
        gate.opened.set()
        assert driver.backend.restore(np.array([0, 1, 2]), 60.0) == []
        driver.reset()


def test_close_is_bounded_while_a_thread_hangs(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(task_above=4.5, at=0)
    driver = drive(gate)
    driver.reset()
    driver.post()
    assert gate.entered.wait(60.0)
    ghosts, started = threads_now(), time.monotonic()
    driver.backend.close()
    assert time.monotonic() - started < 30.0
    assert "environments of thread 1 still runs an environment after 0.2 s" in caplog.text
    gate.opened.set()
    join(ghosts)


def test_everything_of_a_worker_happens_on_its_own_thread() -> None:
    seen: dict[str, set[int]] = {}
    with drive(lambda where, t, task: seen.setdefault(where, set()).add(threading.get_ident())) as driver:
        driver.reset()
        driver.call()
        driver.backend.render(0, 60.0)
        workers = {thread.ident for thread in threads_now()}
    assert seen["make_shard"] == seen["reset"] == seen["step"] == seen["close"] == workers
    assert len(seen["render"]) == 1 and seen["render"] < workers


def test_threads_inside_a_shard_are_for_one_worker_alone() -> None:
    asked: list[int] = []

    class Curious(CountingFamily):
        def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
            asked.append(threads)
            return super().make_shard(num_slots, threads)

    for workers, options in ((1, {"threads": 3}), (2, {}), (2, {"threads": 2})):
        Driver("thread", Curious(), SLOTS, workers=workers, **options).backend.close()
    assert asked == [3, 1, 1, 2, 2]

"""The asyncio backend: many slots wait at the same time, and one that fails or hangs loses nobody else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.toys import CountingFamily
from tests.toys_async import Driver, Gate, Hook, HookedFamily
from tests.toys_faulty import FinalError

SLOTS = 6
ROOT = Path(__file__).resolve().parents[4]


def drive(hook: Hook, *, coroutines: bool = True, num_slots: int = SLOTS) -> Driver:
    return Driver("asyncio", HookedFamily(hook, coroutines=coroutines), num_slots, close_timeout_s=0.3)


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "event loop of the environments"]


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()


def test_hundreds_of_slots_wait_at_the_same_time() -> None:
    num_slots = 300
    arrived: list[float] = []
    everybody: list[asyncio.Event] = []

    def hook(where: str, t: int, task: float) -> Any:
        if where != "step":
            return None
        if not everybody:
            everybody.append(asyncio.Event())
        arrived.append(task)
        if len(arrived) == num_slots:
            everybody[0].set()
        return everybody[0].wait()

    with drive(hook, num_slots=num_slots) as driver:
        driver.reset()
        assert driver.call()[0] == driver.slots.tolist(), "each slot goes on only when all have come"
        assert len(loop_threads()) == 1


def test_a_coroutine_that_hangs_is_cancelled_and_loses_its_slot_only() -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    def hook(where: str, t: int, task: float) -> Any:
        if where == "close" and task == 2.0:
            ended.append("closed")
        return hang() if where == "step" and (t, task) == (1, 2.0) else None

    with drive(hook) as driver:
        driver.reset()
        driver.call()
        ready, (fault,) = driver.call_late([2])
        assert ready == [0, 1, 3, 4, 5] and fault.slots == fault.lost == (2,)
        assert fault.sentence == "gave no answer within 0.2 s"
        assert "in step_slot" in fault.traceback and "await asyncio.Event().wait()" in fault.traceback
        assert driver.backend.restore(np.array([2]), 60.0) == []
        assert ended == ["cancelled", "closed"]
        assert driver.call([2], reset=True) == ([2], [])
        assert driver.call()[1] == []
        assert driver.times == [3.0, 3.0, 1.0, 3.0, 3.0, 3.0]
        assert driver.backend.dropped == 0  # pyright: ignore[reportAttributeAccessIssue]


def test_an_answer_of_a_coroutine_that_refused_to_be_cancelled_is_dropped() -> None:
    released: list[asyncio.Event] = []
    over = threading.Event()

    async def stubborn() -> None:
        released.append(asyncio.Event())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await released[0].wait()

    def hook(where: str, t: int, task: float) -> Any:
        if where == "stepped" and (t, task) == (2, 2.0):
            over.set()
        return stubborn() if where == "step" and (t, task) == (1, 2.0) else None

    with drive(hook) as driver:
        driver.reset()
        driver.call()
        assert driver.call_late([2])[1][0].lost == (2,)
        driver.backend.restore(np.array([2]), 60.0)
        driver.call([2], reset=True)
        loop: Any = vars(driver.backend)["_loops"][0].loop
        loop.call_soon_threadsafe(released[0].set)
        assert over.wait(60.0)
        assert driver.times[2] == 0.0, "it has written, but not here"
        assert driver.call()[1] == []
        assert driver.times[2] == 1.0
        assert driver.backend.dropped == 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("coroutines", [True, False])
def test_one_that_blocks_the_loop_loses_all_slots_and_a_new_loop_takes_over(coroutines: bool) -> None:
    gate = Gate(task_above=4.5)
    with drive(gate, coroutines=coroutines) as driver:
        driver.reset()
        driver.call()
        (ghost,) = loop_threads()
        ready, (fault,) = driver.call(timeout=0.2)
        assert ready == [] or not coroutines
        assert fault.slots == (5,) and fault.lost == tuple(range(SLOTS))
        assert fault.sentence == "stopped the event loop and gave no answer within 0.2 s"
        assert "self.opened.wait()" in fault.traceback
        assert driver.backend.restore(driver.slots, 60.0) == []
        driver.reset()
        before = driver.backend.rows.copy()
        gate.opened.set()
        join([ghost])
        np.testing.assert_array_equal(driver.backend.rows.obs, before.obs)
        assert driver.call() == (driver.slots.tolist(), [])
        assert driver.times == [1.0] * SLOTS


def test_shards_without_coroutines_are_stepped_in_the_loop() -> None:
    seen: set[str] = set()
    with drive(lambda *_: seen.add(threading.current_thread().name), coroutines=False) as driver:
        driver.reset()
        assert driver.call()[1] == []
    assert seen == {"event loop of the environments"}


def test_min_ready_goes_on_with_any_slots_until_the_deadline_of_the_others() -> None:
    def hook(where: str, t: int, task: float) -> Any:
        return asyncio.Event().wait() if where == "step" and task == 3.0 else None

    with drive(hook) as driver:
        driver.reset()
        driver.post()
        ready, faults = driver.backend.wait(driver.slots, 0.5, min_ready=5)
        assert ready.tolist() == [0, 1, 2, 4, 5] and not faults
        while not faults:
            driver.post([0, 1])
            ready, faults = driver.backend.wait(np.array([0, 1, 3]), 0.5, min_ready=2)
            assert faults or ready.tolist() == [0, 1]
        assert faults[0].lost == (3,)


def in_a_task_of_its_own() -> None:
    """Leave by sys.exit in a task that nobody waits for."""

    async def leave() -> None:
        sys.exit(4)

    asyncio.get_running_loop().create_task(leave())


@pytest.mark.parametrize("coroutines", [True, False])
@pytest.mark.parametrize("where", ["step", "close"])
@pytest.mark.parametrize(
    "stop", [lambda: asyncio.get_running_loop().stop(), in_a_task_of_its_own], ids=["stop", "exit"]
)
def test_a_loop_that_an_environment_stops_goes_on(
    stop: Callable[[], None], where: str, coroutines: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(place: str, t: int, task: float) -> Any:
        if place == where and task == 2.0:
            stop()

    with drive(hook, coroutines=coroutines) as driver:
        driver.reset()
        threads = loop_threads()
        for _ in range(3):
            assert driver.call() == (driver.slots.tolist(), [])
    join(threads)
    told = [record for record in caplog.records if "stopped the event loop, which goes on" in record.message]
    assert len(told) == 1


@pytest.mark.parametrize("coroutines", [True, False])
@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, FinalError])
def test_an_error_that_is_no_exception_is_a_fault_at_once(
    error: type[BaseException], coroutines: bool
) -> None:
    def hook(place: str, t: int, task: float) -> Any:
        if place == "step" and task == 2.0:
            raise error("the end")

    with drive(hook, coroutines=coroutines) as driver:
        driver.reset()
        ready, (fault,) = driver.call()
        assert ready == [0, 1, 3, 4, 5] and fault.lost == (2,)
        assert fault.sentence == f"raised {error.__name__}: the end"


def test_a_coroutine_that_forks_and_waits_in_the_child_changes_nothing() -> None:
    forked: list[int] = []

    async def fork() -> None:
        forked.append(os.fork())
        await asyncio.sleep(0.0)

    def hook(place: str, t: int, task: float) -> Any:
        return fork() if place == "step" and task == 2.0 else None

    with drive(hook) as driver:
        driver.reset()
        for _ in range(3):
            assert driver.call() == (driver.slots.tolist(), [])
    assert len(forked) == 3
    for child in forked:
        os.waitpid(child, 0)


def test_a_slot_that_cancels_itself_is_a_fault() -> None:
    def hook(where: str, t: int, task: float) -> None:
        if where == "step" and task == 1.0:
            raise asyncio.CancelledError("out of itself")

    with drive(hook) as driver:
        driver.reset()
        ready, (fault,) = driver.call()
        assert ready == [0, 2, 3, 4, 5] and "CancelledError: out of itself" in fault.sentence


def test_close_cancels_what_still_waits_and_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    driver = drive(lambda where, t, task: wait() if where == "step" else None)
    driver.reset()
    driver.post()
    driver.backend.close()
    assert ended == ["cancelled"] * SLOTS and not caplog.text
    gate = Gate(task_above=4.5, at=0)
    driver = drive(gate)
    driver.reset()
    driver.post()
    assert gate.entered.wait(60.0)
    ghosts, started = loop_threads(), time.monotonic()
    driver.backend.close()
    assert time.monotonic() - started < 30.0
    assert "still runs an environment after 0.3 s" in caplog.text
    gate.opened.set()
    join(ghosts)


def test_there_is_one_loop() -> None:
    with pytest.raises(ValueError, match=r"has one event loop; num_workers=2 needs another backend"):
        Driver("asyncio", CountingFamily(), SLOTS, workers=2)


def test_processes_that_have_no_use_for_asyncio_do_not_import_it() -> None:
    code = "import sys, envs.backends, envs.meta; print('asyncio' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        == "False\n"
    )

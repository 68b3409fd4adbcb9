"""AsyncShard on backends without an event loop: slots wait at the same time, the first to fail is named."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from envs.base import Shard, SlotError
from envs.layout import Layout
from tests.toys_async import Hook, HookedFamily

SLOTS = np.arange(4)


def shard_of(hook: Hook) -> Shard:
    """A shard of four slots, reset with tasks 0, 1, 2 and 3."""
    family = HookedFamily(hook, coroutines=True)
    shard = family.make_shard(len(SLOTS))
    shard.bind(Layout(family.spec).allocate(len(SLOTS)))
    shard.reset(SLOTS, np.repeat(SLOTS[:, None], 2, axis=1).astype(np.float64), SLOTS.astype(np.uint64))
    return shard


def step(shard: Shard, slots: Any = SLOTS) -> None:
    shard.step(np.asarray(slots), np.zeros((len(slots), 2), np.float32))


def test_the_slots_of_one_call_wait_at_the_same_time() -> None:
    arrived: list[float] = []
    everybody: list[asyncio.Event] = []

    def hook(where: str, t: int, task: float) -> Any:
        if where != "step":
            return None
        if not everybody:
            everybody.append(asyncio.Event())
        arrived.append(task)
        if len(arrived) == len(SLOTS):
            everybody[0].set()
        return everybody[0].wait()

    shard = shard_of(hook)
    step(shard)
    assert arrived == [0.0, 1.0, 2.0, 3.0], "each goes on only when all have come"
    assert shard.rows.info[:, 0].tolist() == [1.0] * 4
    shard.close()


def test_only_the_slots_asked_for_are_stepped() -> None:
    shard = shard_of(lambda *_: None)
    step(shard, [1, 3])
    assert shard.rows.info[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0]
    shard.close()


@pytest.mark.parametrize(
    "error",
    [
        lambda: ValueError("odd"),
        lambda: SlotError(0, "ValueError: odd"),
        lambda: asyncio.CancelledError("odd"),
    ],
)
def test_the_first_slot_that_fails_is_named_and_the_others_are_cancelled(
    error: Callable[[], BaseException],
) -> None:
    cancelled: list[float] = []

    async def wait(task: float) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(task)
            raise

    def hook(where: str, t: int, task: float) -> Any:
        if where == "step" and t == 0 and task >= 2.0:
            raise error()
        return wait(task) if where == "step" and t == 0 else None

    shard = shard_of(hook)
    with pytest.raises(SlotError, match=r"ValueError: odd|it cancelled itself") as caught:
        step(shard)
    assert caught.value.slot == 2 and cancelled == [0.0, 1.0]
    shard.close()


def test_the_loop_of_a_shard_outlives_an_interruption_and_ends_with_it() -> None:
    def hook(where: str, t: int, task: float) -> None:
        if where == "step" and t == 0 and task == 1.0 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    interrupted: list[bool] = []
    open_files = len(os.listdir("/dev/fd"))
    shard = shard_of(hook)
    with pytest.raises(KeyboardInterrupt):
        step(shard)
    times = shard.rows.info[:, 0].tolist()
    step(shard, [1])
    assert shard.rows.info[:, 0].tolist() == [times[0], 1.0, times[2], times[3]], (
        "nothing of the interrupted call goes on"
    )
    assert len(os.listdir("/dev/fd")) > open_files
    shard.close()
    assert len(os.listdir("/dev/fd")) == open_files


def test_a_thread_that_runs_a_loop_can_step_it() -> None:
    async def notebook() -> None:
        shard = shard_of(lambda *_: None)
        step(shard)
        assert shard.rows.info[:, 0].tolist() == [1.0] * 4
        shard.close()

    asyncio.run(notebook())


def test_what_a_slot_began_goes_on_while_nobody_steps() -> None:
    answered, began = threading.Event(), list[asyncio.Task[None]]()

    async def keep_alive() -> None:
        await asyncio.sleep(0.01)
        answered.set()

    def hook(where: str, t: int, task: float) -> None:
        if where == "step" and task == 0.0:
            began.append(asyncio.create_task(keep_alive()))

    shard = shard_of(hook)
    step(shard)
    assert answered.wait(60.0)
    shard.close()


def test_a_shard_that_is_forgotten_ends_its_loop() -> None:
    shard = shard_of(lambda *_: None)
    (thread,) = [one for one in threading.enumerate() if one.name == "event loop of a shard"]
    del shard
    gc.collect()
    thread.join(60.0)
    assert not thread.is_alive()


def test_closing_closes_every_slot_even_if_some_fail_to(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[float] = []

    def hook(where: str, t: int, task: float) -> None:
        if where == "close":
            closed.append(task)
            if task in (1.0, 2.0):
                raise OSError("odd")

    shard = shard_of(hook)
    with pytest.raises(SlotError, match="OSError: odd") as caught:
        shard.close()
    assert closed == [0.0, 1.0, 2.0, 3.0] and caught.value.slot == 1
    del caught
    gc.collect()
    assert not caplog.text, "that another one failed too is no error of the loop"

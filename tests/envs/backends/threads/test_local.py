"""What the thread and the asyncio backend promise alike."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from envs.backends.base import BackendError
from envs.backends.threads.local import LocalBackend
from envs.base import SlotError, arrays_of
from tests.toys import CountingConfig, CountingFamily, DictCountingFamily
from tests.toys_async import AsyncCountingFamily, Driver, Gate, Hook, HookedFamily, raising
from tests.toys_faulty import SpeechlessError, UnpicklableError

# Backends, with shards that are stepped and with shards of coroutines.
KINDS = [("thread", False), ("thread", True), ("asyncio", False), ("asyncio", True)]
SLOTS = 6
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{'coroutines' if kind[1] else 'plain'}")
def kind(request: pytest.FixtureRequest) -> tuple[str, bool]:
    return request.param


def drive(kind: tuple[str, bool], hook: Hook, **options: Any) -> Driver:
    name, coroutines = kind
    return Driver(
        name,
        HookedFamily(hook, coroutines=coroutines),
        SLOTS,
        workers=2 if name == "thread" else 1,
        **options,
    )


def lost_with(kind: tuple[str, bool], slot: int) -> tuple[int, ...]:
    """The slots that share a host with this one."""
    if kind[0] == "asyncio":
        return (slot,)
    return (0, 1, 2) if slot < 3 else (3, 4, 5)


def quiet(where: str, t: int, task: float) -> None:
    """Nothing happens."""


def rows_of(name: str, family: CountingFamily, workers: int, groups: int) -> list[bytes]:
    """The rows of thirty rounds, with groups posted apart and slots that start again at different times."""
    rng, streams = np.random.default_rng(3), []
    with Driver(name, family, 7, workers=workers, groups=groups) as driver:
        driver.reset()
        parts = np.split(driver.slots, [3])
        for _ in range(30):
            driver.commands.action[:] = rng.uniform(-1, 1, driver.commands.action.shape)
            driver.commands.reset[:] = rng.random(7) < 0.2
            driver.commands.seed[:] = rng.integers(2**63, size=7)
            for part in parts:
                driver.backend.post(part, driver.commands)
            for part in parts:
                assert driver.backend.wait(part, 60.0)[0].tolist() == part.tolist()
            rows = driver.backend.rows
            arrays = (*arrays_of(rows.obs), rows.reward, rows.terminated, rows.truncated, rows.info)
            streams.append(b"".join(array.tobytes() for array in arrays))
    return streams


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("name", "workers"), [("thread", 1), ("thread", 2), ("thread", 3), ("asyncio", 1)])
@pytest.mark.parametrize("family", [CountingFamily, AsyncCountingFamily, DictCountingFamily])
def test_the_rows_are_those_of_serial(
    family: type[CountingFamily], name: str, workers: int, groups: int
) -> None:
    reference = rows_of(
        "serial", DictCountingFamily() if family is DictCountingFamily else CountingFamily(), 1, groups
    )
    assert rows_of(name, family(), workers, groups) == reference
    assert len(set(reference)) == 30


def test_commands_belong_to_the_caller_again_after_the_post(kind: tuple[str, bool]) -> None:
    gate = Gate(task_above=-1.0, at=0)
    with drive((kind[0], False), gate) as driver:
        driver.reset()
        driver.commands.action[:] = 0.5
        driver.post()
        gate.entered.wait(60.0)
        driver.commands.action[:] = np.nan
        driver.commands.reset[:] = True
        gate.opened.set()
        assert driver.backend.wait(driver.slots, 60.0)[1] == []
        (obs,) = arrays_of(driver.backend.rows.obs)
        assert obs[:, 4].tolist() == [0.5] * SLOTS


def test_one_slot_that_raises_loses_its_host_and_nothing_else(kind: tuple[str, bool]) -> None:
    with drive(kind, raising(ValueError("the toy is broken"), task_above=4.5)) as driver:
        driver.reset()
        assert driver.call()[1] == []
        ready, (fault,) = driver.call()
        lost = lost_with(kind, 5)
        assert fault.lost == lost and 5 in fault.slots
        assert ready == [slot for slot in range(SLOTS) if slot not in lost]
        assert "ValueError: the toy is broken" in fault.sentence and "in raising" not in fault.sentence
        assert "toys_async.py" in fault.traceback and "raise error" in fault.traceback
        assert [driver.times[slot] for slot in ready] == [2.0] * len(ready)
        assert driver.backend.restore(np.array(lost), 60.0) == []
        assert driver.call(lost, reset=True) == (list(lost), [])
        assert driver.call()[1] == []


def test_a_slot_error_names_its_slot(kind: tuple[str, bool]) -> None:
    with drive((kind[0], False), raising(SlotError(0, "odd"), task_above=-1.0)) as driver:
        driver.reset()
        driver.call()
        _, faults = driver.call()
        assert sorted(slot for fault in faults for slot in fault.slots) == (
            [0, 3] if kind[0] == "thread" else list(range(SLOTS))
        )
        assert all("raised SlotError: odd" in fault.sentence for fault in faults)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(4), "SystemExit: 4"),
        (UnpicklableError("cannot be sent", object()), "UnpicklableError: cannot be sent"),
        (SpeechlessError(), "SpeechlessError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("x" * 50_000_000), "ValueError: xxxx"),
    ],
    ids=["exit", "unpicklable", "speechless", "interrupt", "huge"],
)
@pytest.mark.parametrize("name", ["thread", "asyncio"])
def test_whatever_is_raised_becomes_a_fault_of_bounded_length(
    name: str, error: BaseException, text: str
) -> None:
    with drive((name, False), raising(error, task_above=4.5, at=0)) as driver:
        driver.reset()
        _, (fault,) = driver.call()
        assert text in fault.sentence
        assert len(fault.sentence) + len(fault.traceback) < 40_000
        assert driver.call([0, 1, 2])[1] == [], "the thread lives on"


def test_numbers_that_are_none_are_a_fault(kind: tuple[str, bool]) -> None:
    with drive(kind, quiet) as driver:
        driver.reset()
        driver.commands.action[4] = np.nan
        _, (fault,) = driver.call()
        assert fault.slots == (4,) and "not finite" in fault.sentence and fault.lost == lost_with(kind, 4)


def test_raising_in_reset_is_a_fault_until_restored(kind: tuple[str, bool]) -> None:
    broken = [True]

    def hook(where: str, t: int, task: float) -> None:
        if where == "reset" and task == 1.0 and broken[0]:
            raise OSError("not now")

    with drive(kind, hook) as driver:
        ready, (fault,) = driver.call(reset=True)
        lost = list(lost_with(kind, 1))
        assert fault.lost == tuple(lost) and set(ready) == set(range(SLOTS)) - set(lost)
        again, (same,) = driver.call(lost, reset=True)
        assert again == [] and same.lost == fault.lost, "posted without a restore"
        broken[0] = False
        assert driver.backend.restore(np.array(lost), 60.0) == []
        driver.reset()


def test_an_environment_that_cannot_be_built_is_one_error_and_leaves_no_thread(
    kind: tuple[str, bool],
) -> None:
    with pytest.raises(
        BackendError, match=r"slots 0 to 5 could not be built: raised ValueError: no licence"
    ) as caught:
        drive(kind, raising(ValueError("no licence"), "make_shard"))
    assert str(caught.value).count("Traceback") == 1


def test_a_restore_that_fails_says_so_and_may_be_tried_again(kind: tuple[str, bool]) -> None:
    hooks: list[Hook] = [quiet]
    with drive(kind, lambda *where: hooks[0](*where)) as driver:
        driver.reset()
        hooks[0] = raising(ValueError("first"), task_above=4.5, at=0)
        lost = driver.call()[1][0].lost
        hooks[0] = raising(ValueError("second"), "make_shard")
        (fault,) = driver.backend.restore(np.array(lost), 60.0)
        assert fault.lost == lost and "raised ValueError: second" in fault.sentence
        hooks[0] = quiet
        assert driver.backend.restore(np.array(lost), 60.0) == []
        driver.reset()


def test_an_environment_that_cannot_close_is_told_and_stops_nothing(
    kind: tuple[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        drive(kind, raising(ValueError("the door is stuck"), "close")) as driver,
        caplog.at_level(logging.WARNING),
    ):
        driver.reset()
    assert "failed to close" in caplog.text and "the door is stuck" in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_an_environment_that_ends_its_thread_when_closed_ends_nothing(
    kind: tuple[str, bool], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with drive(kind, raising(error, "close")) as driver:
        driver.reset()
    assert caplog.text.count("failed to close") == (6 if kind[0] == "asyncio" else 2), "every host was closed"
    assert type(error).__name__ in caplog.text
    gc.collect()  # a coroutine that nobody awaited would say so now, and warnings are errors


def test_close_closes_every_environment_once_and_may_be_called_twice(kind: tuple[str, bool]) -> None:
    closed: list[float] = []
    driver = drive(kind, lambda where, t, task: closed.append(task) if where == "close" else None)
    driver.reset()
    driver.backend.close()
    driver.backend.close()
    assert sorted(closed) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for call in (
        driver.post,
        lambda: driver.backend.wait(driver.slots, 1.0),
        lambda: driver.backend.restore(driver.slots, 1.0),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_forgotten_backend_closes_itself(kind: tuple[str, bool]) -> None:
    drive(kind, quiet).reset()
    gc.collect()
    assert not [
        thread.name for thread in threading.enumerate() if "environments" in thread.name and thread.is_alive()
    ]


def test_slots_may_be_posted_one_by_one_and_awaited_in_any_order(kind: tuple[str, bool]) -> None:
    with drive(kind, quiet) as driver:
        driver.reset()
        for _ in range(100):
            for slot in (4, 0, 5, 1, 3, 2):
                driver.post([slot])
            for slots in ([1, 5], [0, 2], [3, 4]):
                assert driver.backend.wait(np.array(slots), 60.0)[0].tolist() == slots
        assert driver.times == [100.0] * SLOTS


def test_pictures_are_drawn_and_one_that_cannot_be_loses_nothing(kind: tuple[str, bool]) -> None:
    with Driver(kind[0], CountingFamily(CountingConfig(falls=False)), SLOTS) as driver:
        driver.reset()
        driver.call([4])
        assert [int(driver.backend.render(slot, 60.0).max()) for slot in (3, 4)] == [0, 1]
    with drive((kind[0], False), raising(ValueError("no screen"), "render")) as driver:
        driver.reset()
        with pytest.raises(
            RuntimeError, match=r"slot 2 could not be drawn: the environment raised ValueError: no screen"
        ):
            driver.backend.render(2, 60.0)
        assert driver.call()[1] == []


def test_a_hung_environment_keeps_neither_close_nor_the_interpreter(kind: tuple[str, bool]) -> None:
    workers = 2 if kind[0] == "thread" else 1
    code = f"""
import threading
from tests.toys_async import Driver, HookedFamily
entered = threading.Event()
def hook(where, t, task):
    if where == "step":
        entered.set()
        threading.Event().wait()
family = HookedFamily(hook, coroutines={kind[1]})
driver = Driver("{kind[0]}", family, 2, workers={workers}, close_timeout_s=0.1)
driver.reset()
print(driver.call(timeout=0.1)[1][0].sentence)
driver.backend.restore(driver.slots, 60.0)
driver.reset()
entered.clear()
driver.post()
entered.wait()
print("ends")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert "gave no answer within 0.1 s" in done.stdout and done.stdout.endswith("ends\n")
    assert "left behind" in done.stderr and "Traceback" not in done.stderr


def test_the_host_that_takes_a_lost_ones_place_shares_no_array_with_it(kind: tuple[str, bool]) -> None:
    with drive(kind, quiet) as driver:
        driver.reset()
        backend = cast(LocalBackend, driver.backend)
        old, other = backend._hosts[:2]
        backend.restore(np.array(old.slots), 60.0)
        new = backend._hosts[0]
        assert (
            old.abandoned
            and old.private_rows is other.private_rows
            and new.private_rows is not old.private_rows
        )
        pairs = [
            *zip(vars(old.commands).values(), vars(new.commands).values(), strict=True),
            (old.rows.reward, new.rows.reward),
        ]
        assert not any(np.shares_memory(before, after) for before, after in pairs)
        driver.reset()
        assert driver.call() == (driver.slots.tolist(), [])

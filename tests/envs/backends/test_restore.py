"""Lost workers: who is told what, what else goes on, and new processes in their places that leave nothing of
the old ones.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, Block, Commands, StartMethod
from envs.backends.serial import SerialBackend
from envs.backends.workers.pipe import PipeBackend
from envs.backends.workers.process import ProcessBackend
from envs.base import TaskFamily
from envs.layout import Layout
from tests.envs.backends.troubles import DoingFamily, nothing
from tests.toys import CountingConfig, CountingFamily
from tests.toys_faulty import FaultyFamily

SLOTS = 6
EVERYONE = np.arange(SLOTS)
Kind = type[ProcessBackend]


@pytest.fixture(params=[ProcessBackend, PipeBackend])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


class Slots:
    """Six slots in workers, with their commands; slot 3 has a task that faulty families fail on."""

    def __init__(
        self,
        kind: type[ProcessBackend | SerialBackend],
        family: TaskFamily | None = None,
        workers: int = 3,
        groups: int = 1,
    ) -> None:
        chosen = family or CountingFamily(CountingConfig(falls=False))
        config = BackendConfig(threads=1, close_timeout_s=0.5)
        self.backend = kind(
            [Block(lambda: chosen, 0, SLOTS)],
            Layout(chosen.spec),
            num_workers=workers,
            num_groups=groups,
            config=config,
        )
        self.commands = Commands.empty(self.backend.rows)
        self.commands.seed[:] = EVERYONE
        self.commands.task[:] = EVERYONE[:, None] / 10
        self.commands.task[3, 0] = 9.0

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.close()

    def post(self, *slots: int, reset: bool = False) -> NDArray[np.int64]:
        chosen = np.array(slots or EVERYONE)
        self.commands.reset[:] = reset
        self.commands.action[:] = 0.5
        self.backend.post(chosen, self.commands)
        return chosen

    def go(self, *slots: int, reset: bool = False) -> None:
        """Post and wait for rows."""
        chosen = self.post(*slots, reset=reset)
        ready, faults = self.backend.wait(chosen, 20.0)
        assert not faults and ready.tolist() == chosen.tolist()

    def row_bytes(self) -> bytes:
        rows = self.backend.rows
        assert isinstance(rows.obs, np.ndarray)
        return b"".join(
            array.tobytes() for array in (rows.obs, rows.reward, rows.terminated, rows.truncated, rows.info)
        )


def kill(pid: int) -> None:
    """And wait until it is dead: on a busy machine it could otherwise still answer the next requests."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([process], [], [], 20.0)[0]
    os.close(process)


@pytest.fixture
def reference() -> Iterator[Slots]:
    with Slots(SerialBackend, workers=1) as serial:
        yield serial


@pytest.mark.parametrize("groups", [1, 2])
def test_a_killed_worker_is_one_fault_and_its_successor_gives_the_same_rows(
    kind: Kind, groups: int, reference: Slots
) -> None:
    with Slots(kind, groups=groups) as slots:
        slots.go(reset=True)
        slots.go()
        worker = psutil.Process(list(slots.backend.processes())[1])
        worker.suspend()  # so that it has answered nothing of what is posted
        while worker.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        slots.post()
        worker.kill()
        ready, (fault,) = slots.backend.wait(EVERYONE, 20.0)
        lost = [2, 3] if groups == 1 else [1, 4]
        assert list(fault.slots) == list(fault.lost) == lost and ready.tolist() == sorted(
            {*range(SLOTS)} - {*lost}
        )
        assert (
            fault.sentence == "was lost: its worker process was killed by signal 9 (SIGKILL; out of memory?)"
        )
        assert slots.backend.restore(np.array(lost), 20.0) == []
        slots.go(*lost, reset=True)
        slots.go(*lost)
        slots.go(*lost)
        slots.go()
        for reset in (True, False, False, False):
            reference.go(reset=reset)
        assert slots.row_bytes() == reference.row_bytes()


def test_a_slot_that_is_lost_and_not_restored_is_a_fault_at_once(kind: Kind) -> None:
    with Slots(kind) as slots:
        slots.go(reset=True)
        kill(list(slots.backend.processes())[1])
        slots.post()
        assert len(slots.backend.wait(EVERYONE, 20.0)[1]) == 1
        slots.go(0, 1, 4, 5)
        slots.post(1, 2)
        ready, (fault,) = slots.backend.wait(np.array([1, 2]), 20.0)
        assert ready.tolist() == [1] and (fault.slots, fault.lost) == ((2,), (2, 3))
        assert fault.sentence.endswith("(before, and was not built anew)")
        assert slots.backend.restore(np.array([2, 3]), 20.0) == []
        slots.go(2, 3, reset=True)
        slots.go()


def test_an_error_loses_the_whole_worker_and_nobody_else(kind: Kind) -> None:
    family = FaultyFamily(fault="slot_error", at=1, task_above=5.0)
    with Slots(kind, family, workers=2, groups=2) as slots:
        slots.go(reset=True)
        first, second = [0, 1, 2], [3, 4, 5]
        slots.post(*first)
        slots.post(*second)
        ready, (fault,) = slots.backend.wait(np.array(second), 20.0)
        assert fault.slots == (3,) and fault.lost == (0, 3), "of both groups"
        assert fault.sentence == "raised SlotError: the toy is broken" and "in go_wrong" in fault.traceback
        assert ready.tolist() == [4, 5]
        ready, faults = slots.backend.wait(np.array([1, 2]), 20.0)
        assert ready.tolist() == [1, 2] and not faults, "pending posts of others stay"


@pytest.mark.parametrize("fault", ["sleep", "hold_gil", "stopped"])
def test_a_hung_worker_is_ended_at_its_deadline_and_replaced(kind: Kind, fault: str) -> None:
    family = (
        CountingFamily(CountingConfig(falls=False))
        if fault == "stopped"
        else FaultyFamily(fault=fault, at=1, task_above=5.0)
    )
    with Slots(kind, family) as slots:
        slots.go(reset=True)
        old = list(slots.backend.processes())[1]
        if fault == "stopped":
            os.kill(old, signal.SIGSTOP)
        slots.post()
        ready, (told,) = slots.backend.wait(EVERYONE, 0.3)
        assert (
            told.sentence == "gave no answer within 0.3 s"
            and told.lost == (2, 3)
            and ready.tolist() == [0, 1, 4, 5]
        )
        assert ("in go_wrong" in told.traceback) == (fault != "stopped")
        assert slots.backend.restore(np.array([2, 3]), 20.0) == []
        assert not Path(f"/proc/{old}").exists()
        slots.commands.task[3, 0] = 0.0
        slots.go(2, 3, reset=True)
        slots.go()


def test_somebody_who_watched_the_clock_may_wait_no_longer(kind: Kind) -> None:
    with Slots(kind, FaultyFamily(fault="sleep", at=1, task_above=5.0)) as slots:
        slots.go(reset=True)
        slots.post()
        slots.backend.wait(np.array([0, 1, 4, 5]), 20.0)
        ready, (told,) = slots.backend.wait(np.array([2, 3]), 0.0)
        assert not len(ready) and told.sentence.startswith("gave no answer within 0")


def test_several_workers_are_lost_and_restored_together(kind: Kind) -> None:
    with Slots(kind) as slots:
        slots.go(reset=True)
        for pid in list(slots.backend.processes()):
            os.kill(pid, signal.SIGKILL)
        slots.post()
        ready, faults = slots.backend.wait(EVERYONE, 20.0)
        assert not len(ready) and sorted(fault.lost for fault in faults) == [(0, 1), (2, 3), (4, 5)]
        assert slots.backend.restore(EVERYONE, 20.0) == []
        slots.go(reset=True)
        slots.go()


def test_what_cannot_be_built_anew_is_a_fault_and_may_be_tried_again(kind: Kind, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    with Slots(kind, DoingFamily(nothing, str(broken))) as slots:
        slots.go(reset=True)
        kill(list(slots.backend.processes())[1])
        slots.post()
        slots.backend.wait(EVERYONE, 20.0)
        broken.touch()
        (fault,) = slots.backend.restore(np.array([2, 3]), 20.0)
        assert (fault.slots, fault.lost, fault.sentence) == (
            (2, 3),
            (2, 3),
            "raised ValueError: it is broken",
        )
        slots.go(0, 1, 4, 5)
        broken.unlink()
        assert slots.backend.restore(np.array([2, 3]), 20.0) == []
        slots.go(2, 3, reset=True)


def test_no_process_to_be_had_is_a_fault_and_may_be_tried_again(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Slots(kind) as slots:
        slots.go(reset=True)
        kill(list(slots.backend.processes())[1])
        slots.post()
        slots.backend.wait(EVERYONE, 20.0)
        with monkeypatch.context() as patch:
            patch.setattr(
                "envs.backends.workers.launch._start_child",
                lambda *_: (_ for _ in ()).throw(BlockingIOError(11, "no more processes")),
            )
            (fault,) = slots.backend.restore(np.array([2, 3]), 20.0)
        assert fault.lost == (2, 3) and "could not be started: [Errno 11] no more processes" in fault.sentence
        assert slots.backend.restore(np.array([2, 3]), 20.0) == []
        slots.go(2, 3, reset=True)


def test_first_ready_does_not_wait_for_a_hung_one_but_returns_at_a_death(kind: Kind) -> None:
    with Slots(kind, FaultyFamily(fault="sleep", at=1, task_above=5.0)) as slots:
        slots.go(reset=True)
        slots.post()
        ready, faults = slots.backend.wait(EVERYONE, 20.0, min_ready=4)
        assert ready.tolist() == [0, 1, 4, 5] and not faults
        kill(list(slots.backend.processes())[1])
        ready, (fault,) = slots.backend.wait(np.array([2, 3]), 20.0, min_ready=1)
        assert not len(ready) and fault.lost == (2, 3)


def test_first_ready_has_deadlines_too(kind: Kind) -> None:
    with Slots(kind, FaultyFamily(fault="sleep", at=1, task_above=5.0)) as slots:
        slots.go(reset=True)
        slots.post()
        started = time.monotonic()
        ready, (fault,) = slots.backend.wait(EVERYONE, 0.3, min_ready=5)
        assert time.monotonic() - started < 30.0
        assert ready.tolist() == [0, 1, 4, 5] and fault.sentence == "gave no answer within 0.3 s"


def test_a_picture_that_cannot_be_drawn_leaves_the_worker_as_it_was(kind: Kind) -> None:
    with Slots(kind, FaultyFamily(fault="raise", where="render", task_above=5.0)) as slots:
        slots.go(reset=True)
        before = list(slots.backend.processes())
        with pytest.raises(
            RuntimeError,
            match="picture of slot 3 could not be drawn: the environment raised ValueError: the toy",
        ):
            slots.backend.render(3, 20.0)
        slots.go()
        assert list(slots.backend.processes()) == before


@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.fork])
def test_twenty_kills_leave_nothing(kind: Kind, method: StartMethod) -> None:
    family = CountingFamily(CountingConfig(falls=False))
    config = BackendConfig(start_method=method)
    backend = kind([Block(lambda: family, 0, 2)], Layout(family.spec), num_workers=2, config=config)
    commands, slots, files = Commands.empty(backend.rows), np.arange(2), list[int]()
    commands.reset[:] = True
    try:
        for number in range(20):
            os.kill(list(backend.processes())[number % 2], signal.SIGKILL)
            backend.post(slots, commands)
            ready, (fault,) = backend.wait(slots, 20.0)
            assert fault.lost == (number % 2,) and ready.tolist() == [1 - number % 2]
            assert backend.restore(np.array(fault.lost), 20.0) == []
            backend.post(slots, commands)
            assert backend.wait(slots, 20.0)[1] == []
            files.append(len(os.listdir("/dev/fd")))
        assert files == [files[0]] * 20
        assert len(list(backend.processes())) == 2 and not any(worker.stale for worker in backend._workers)
    finally:
        backend.close()


@pytest.mark.parametrize("where", ["post", "wait", "restore", "render"])
def test_a_closed_backend_says_so(kind: Kind, where: str) -> None:
    slots = Slots(kind)
    slots.backend.close()
    calls = {
        "post": lambda: slots.backend.post(EVERYONE, slots.commands),
        "wait": lambda: slots.backend.wait(EVERYONE, 1.0),
        "restore": lambda: slots.backend.restore(EVERYONE, 1.0),
        "render": lambda: slots.backend.render(0, 1.0),
    }
    with pytest.raises(RuntimeError, match="closed"):
        calls[where]()

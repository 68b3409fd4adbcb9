"""The process backend when things go wrong: every fault is one named error, nothing hangs, and nothing is
left.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import resource
import signal
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, BackendError, Block, OnFault, StartMethod
from envs.backends.workers.process import ProcessBackend
from envs.layout import Layout
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.toys import ACTION_DIM, CountingConfig, CountingFamily, LongTaskFamily
from tests.toys_faulty import FaultyFamily
from utils.stop_signal import ENDINGS

METHODS = [StartMethod.forkserver, StartMethod.spawn, StartMethod.fork]
SLOTS = 6
WORKERS = 3


def manage(
    family: CountingFamily | None = None, workers: int = WORKERS, **options: Any
) -> ParallelEnvManager:
    """Six slots in three workers."""
    config = BackendConfig(name="process", on_fault=OnFault["raise"], **options)
    return ParallelEnvManager(
        family or CountingFamily(CountingConfig(falls=False)), SLOTS, num_workers=workers, backend=config
    )


def act() -> NDArray[np.float32]:
    """Actions for all slots."""
    return np.zeros((SLOTS, ACTION_DIM), np.float32)


def run_until_error(manager: ParallelEnvManager) -> str:
    """The text of the error that a few steps end in. In slot 3 (worker 1), tasks are above 5."""
    tasks = np.full((SLOTS, 2), 0.5)
    tasks[3, 0] = 9.0
    with manager, pytest.raises(WorkerError) as caught:
        manager.reset(tasks, list(range(SLOTS)))
        for _ in range(4):
            manager.step(act())
    assert manager.pids == []
    return str(caught.value)


# -- faults of the environment and of its process ------------------------------------------------------------


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "raised ValueError: the toy is broken"),
        ("unpicklable", "raised UnpicklableError: cannot be sent"),
        ("speechless", "raised SpeechlessError: <exception str() failed>"),
        ("huge", "raised ValueError: xxxxxxxx"),
        ("import", "raised ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("exit", "was lost: its worker process exited with code 3"),
        ("sys_exit", "was lost: its worker process exited with code 4"),
        ("abort", "was lost: its worker process was killed by signal 6 (SIGABRT)"),
        ("close_pipes", "was lost: its worker process"),
    ],
)
def test_a_fault_is_one_error_that_names_its_slots(fault: str, said: str, where: str) -> None:
    text = run_until_error(manage(FaultyFamily(fault=fault, where=where, task_above=5.0)))
    first = text.splitlines()[0]
    assert said in first and first.startswith("The environment of slot 2 (task [0.5, 0.5], trial seed 2, ")
    assert "slot 3 (task [9.0, 0.5], trial seed 3, " in first and "slot 4" not in text
    assert len(text) < 70_000


@pytest.mark.parametrize("fault", ["sleep", "busy", "hold_gil"])
def test_a_hang_ends_at_the_deadline_and_says_where_it_was(fault: str) -> None:
    manager = manage(FaultyFamily(fault=fault, task_above=5.0), call_timeout_s=0.3)
    started = time.monotonic()
    text = run_until_error(manager)
    assert time.monotonic() - started < 30.0
    assert "gave no answer within 0.3 s" in text and "slot 3" in text and "slot 4" not in text
    assert "It was stopped here" in text and "in go_wrong" in text


def test_a_stopped_worker_is_a_hang_too() -> None:
    manager = manage(call_timeout_s=0.3)
    os.kill(manager.pids[1], signal.SIGSTOP)
    assert "gave no answer within 0.3 s" in run_until_error(manager)


def test_several_hanging_workers_are_all_named() -> None:
    text = run_until_error(manage(FaultyFamily(fault="sleep"), call_timeout_s=0.3))
    assert text.count("gave no answer within 0.3 s") == WORKERS


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGKILL, "SIGKILL; out of memory?"),
        (signal.SIGSEGV, "SIGSEGV"),
        (signal.SIGRTMIN + 6, "a real-time signal"),
    ],
)
def test_a_worker_killed_while_idle_is_named_at_the_next_step(number: int, name: str) -> None:
    with manage() as manager:
        manager.reset()
        pid = manager.pids[2]
        os.kill(pid, number)
        with pytest.raises(
            WorkerError, match=rf"slot 4 .*slot 5 .*killed by signal {number:d} \({re.escape(name)}\)"
        ):
            manager.step(act())


def test_a_worker_killed_in_mid_step_is_noticed_long_before_the_deadline() -> None:
    with manage(FaultyFamily(fault="sleep", task_above=5.0), call_timeout_s=60.0) as manager:
        manager.reset(np.full((SLOTS, 2), 9.0))
        manager.step(act())
        manager.remotes[0].send(("step", act()[0]))
        timer = threading.Timer(0.1, os.kill, (manager.pids[0], signal.SIGKILL))
        timer.start()
        started = time.monotonic()
        with pytest.raises(WorkerError, match=r"slot 0 .*killed by signal 9 \(SIGKILL; out of memory\?\)"):
            manager.remotes[0].recv()
        assert time.monotonic() - started < 30.0


def test_a_picture_that_cannot_be_drawn_is_an_error_of_that_slot() -> None:
    with manage(FaultyFamily(fault="raise", where="render")) as manager:
        manager.reset()
        with pytest.raises(
            RuntimeError,
            match="picture of slot 3 could not be drawn: the environment raised ValueError: the toy",
        ):
            manager.render(3)


# -- starting ------------------------------------------------------------------------------------------------


def test_the_description_counts_the_workers_and_names_the_start_method() -> None:
    with manage(start_method=StartMethod.spawn) as manager:
        assert manager.description == "3 worker processes (spawn)"
    with manage() as manager:
        assert manager.description == "3 worker processes (forkserver)"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "raised ValueError: the toy is broken"),
        ("exit", "was lost: its worker process exited with code 3"),
        ("sleep", "gave no answer within 0.5 s"),
        ("import", "raised ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
    ],
)
def test_workers_that_cannot_build_are_all_listed_once(fault: str, said: str) -> None:
    with pytest.raises(BackendError) as caught:
        manage(FaultyFamily(fault=fault, where="make_shard"), construct_timeout_s=0.5)
    assert str(caught.value).splitlines()[0] == f"The environments of slots 0 to 5 could not be built: {said}"


def test_different_failures_to_build_are_told_apart() -> None:
    good, bad, worse = (
        CountingFamily(),
        FaultyFamily(fault="raise", where="make_shard"),
        FaultyFamily(fault="exit", where="make_shard"),
    )
    factories = [lambda: good, lambda: bad, lambda: worse]
    with pytest.raises(BackendError) as caught:
        ParallelEnvManager(
            [factories[i] for i in (0, 0, 1, 1, 2, 2)], num_workers=3, backend=BackendConfig(name="process")
        )
    lines = [line for line in str(caught.value).splitlines() if line.startswith("The environments ")]
    assert lines == [
        "The environments of slots 2 to 3 could not be built: raised ValueError: the toy is broken",
        "The environments of slots 4 to 5 could not be built: "
        "was lost: its worker process exited with code 3",
    ]


def test_a_module_that_a_worker_cannot_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "from tests.toys import CountingFamily\nclass Here(CountingFamily): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    family = __import__("only_here").Here()
    sys.path.remove(str(tmp_path))
    try:
        with pytest.raises(
            BackendError,
            match="could not be built: raised ModuleNotFoundError: No module named 'only_here'",
        ):
            manage(family)
    finally:
        del sys.modules["only_here"]


def test_what_cannot_be_pickled_is_named_before_any_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.backends.workers.process.start_children", None)
    family = CountingFamily()
    family.extras = {"lock": threading.Lock()}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        BackendError,
        match=r"factory\.family\.extras\['lock'\] \(a lock\) cannot be pickled "
        r"\(cannot pickle '_thread.lock' object\)",
    ):
        manage(family)
    lock = threading.Lock()

    def factory() -> CountingFamily:
        with lock:
            return CountingFamily()

    block = Block(factory, 0, 2)
    with pytest.raises(BackendError, match=r"lock \(used by .*factory\) \(a lock\) cannot be pickled"):
        ProcessBackend([block], Layout(family.spec), num_workers=2, config=BackendConfig())


def test_too_few_open_files_are_refused_before_any_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.backends.workers.process.start_children", None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 28, hard))
    try:
        with pytest.raises(
            BackendError,
            match=r"3 worker processes need \d+ open files, .* run `ulimit -n \d+` before, or use fewer",
        ):
            manage()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("method", METHODS)
def test_starting_workers_leaves_this_process_as_it_was(method: StartMethod) -> None:
    before = (
        dict(os.environ),
        sys.modules["__main__"],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getsignal(signal.SIGINT),
    )
    with manage(start_method=method):
        pass
    assert before == (
        dict(os.environ),
        sys.modules["__main__"],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getsignal(signal.SIGINT),
    )


@pytest.mark.parametrize("method", METHODS)
def test_workers_outlive_the_thread_that_started_them(method: StartMethod) -> None:
    made: list[ParallelEnvManager] = []
    thread = threading.Thread(target=lambda: made.append(manage(start_method=method)))
    thread.start()
    thread.join()
    with made[0] as manager:
        manager.reset()
        assert manager.step(act()).info[:, 0].tolist() == [1.0] * SLOTS


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_to_the_whole_group_leaves_the_trainer_its_workers(method: StartMethod) -> None:
    helper: Any = vars(forkserver)["_forkserver"]
    with manage(start_method=method) as manager:
        group = [*manager.pids, *([helper._forkserver_pid] if method is StartMethod.forkserver else [])]
        for pid in group:
            for number in ENDINGS:
                os.kill(pid, number)
        manage(start_method=method).close()  # by now the signals have arrived
        assert method is not StartMethod.forkserver or helper._forkserver_pid in group
        manager.reset()
        assert manager.step(act()).info[:, 0].tolist() == [1.0] * SLOTS


# -- the pipes -----------------------------------------------------------------------------------------------


def test_nothing_is_pickled_once_the_workers_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    with manage() as manager:
        for function in ("loads", "dumps", "Unpickler", "Pickler"):
            monkeypatch.setattr(pickle, function, None)
        monkeypatch.setattr(cloudpickle, "dumps", None)
        manager.reset()
        manager.step(act())
        with pytest.raises(BackendError, match="cannot be pickled"):  # the control: building does pickle
            manage()


def test_tasks_larger_than_a_pipe_arrive_whole() -> None:
    tasks = np.random.default_rng(0).uniform(size=(4, 100_000))
    with ParallelEnvManager(LongTaskFamily(), 4, num_workers=2) as manager:
        np.testing.assert_array_equal(manager.reset(tasks).obs, tasks[:, [0, -1]].astype(np.float32))


# -- the end -------------------------------------------------------------------------------------------------


def test_close_may_be_called_twice_and_rows_stay_readable() -> None:
    manager = manage()
    rows = manager.reset()
    manager.close()
    manager.close()
    assert rows.valid.all()
    with pytest.raises(RuntimeError, match="closed"):
        manager.step(act())


def test_a_forgotten_manager_closes_itself() -> None:
    manager = manage()
    manager.reset()
    pids = manager.pids
    del manager
    gc.collect()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_forgotten_backend_closes_itself() -> None:
    family = CountingFamily()
    backend = ProcessBackend(
        [Block(lambda: family, 0, 2)], Layout(family.spec), num_workers=2, config=BackendConfig()
    )
    pids = list(backend.processes())
    del backend
    gc.collect()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_close_is_bounded_while_a_worker_hangs() -> None:
    manager = manage(FaultyFamily(fault="sleep", where="reset", task_above=5.0), close_timeout_s=0.2)
    for slot in range(SLOTS):
        manager.remotes[slot].send(("reset", {"task": [9.0, 9.0]}))
    started = time.monotonic()
    manager.close()
    assert time.monotonic() - started < 30.0


def test_an_environment_that_cannot_close_stops_nothing_and_is_told(
    capfd: pytest.CaptureFixture[str],
) -> None:
    manager = manage(FaultyFamily(fault="raise", where="close"), start_method=StartMethod.spawn)
    manager.reset()
    manager.close()
    assert capfd.readouterr().err.count("ValueError: the toy is broken") == WORKERS


def test_ctrl_c_while_waiting_closes_everything() -> None:
    manager = manage(FaultyFamily(fault="sleep", where="reset", task_above=-1.0), close_timeout_s=0.2)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), manager:
        manager.reset()
    timer.join()
    assert manager.pids == []


@pytest.mark.parametrize("method", [StartMethod.forkserver, StartMethod.fork])
def test_thirty_managers_one_after_the_other_leave_nothing(method: StartMethod) -> None:
    open_files: list[int] = []
    for _ in range(30):
        with manage(start_method=method) as manager:
            manager.reset()
        open_files.append(len(os.listdir("/dev/fd")))
    assert open_files[-1] == open_files[1]

"""Small families for tests that fail in every way an environment can, where and as often as a test says."""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Shard, SlotError
from tests.toys import CountingConfig, CountingFamily, CountingShard
from utils.options import option


class UnpicklableError(Exception):
    """An error that cannot be pickled, and that a plain constructor call cannot rebuild."""

    def __init__(self, first: str, second: object) -> None:
        super().__init__(first)
        self.second = second
        self.trap = lambda: second


class SpeechlessError(Exception):
    """An error whose text cannot be had, and that cannot be pickled."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __reduce__(self) -> Any:
        raise RuntimeError("no parts")


class FinalError(BaseException):
    """An error that `except Exception` does not see."""


def surroundings() -> dict[str, Any]:
    """What a process sees of the world."""
    deaf_to = [
        name
        for name in ("SIGHUP", "SIGINT", "SIGTERM")
        if signal.getsignal(getattr(signal, name)) not in (signal.SIG_DFL, signal.default_int_handler)
    ]
    blocked = sorted(signal.Signals(one).name for one in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    variables = {
        name: os.environ.get(name)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WANDB_MODE")
    }
    heavy = [name for name in ("torch", "hydra", "wandb") if name in sys.modules]
    return {
        "deaf_to": deaf_to,
        "blocked": blocked,
        "variables": variables,
        "stdin": os.readlink("/proc/self/fd/0"),
        "heavy": heavy,
    }


# Faults by which a process ends or stops itself at once.
SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "bus": signal.SIGBUS, "stop": signal.SIGSTOP}
# How long the fault `late` takes, before the step goes on as if nothing had happened.
LATE_S = 0.5


def reply_pipe() -> int:
    """The pipe through which the worker that we are in answers."""
    frame: Any = sys._getframe()
    while frame.f_code.co_name != "serve_requests":
        frame = frame.f_back
    return frame.f_locals["descriptors"].replies


# The children that faults of this process have forked, for tests of backends without worker processes.
forked: list[int] = []


def fork(child: str) -> None:
    """Fork, and let the child come back from the call, raise an error, or stay for ever."""
    pid = os.fork()
    if pid:
        forked.append(pid)
        return
    if child == "raise":
        raise ValueError("the child is broken")
    if child == "stay":
        time.sleep(1e6)


def write_into_rows() -> None:
    """Write to every descriptor of shared rows, as a stray write may; and say how many there were."""
    found = [one for one in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{one}")]
    rows = [int(one) for one in found if "retrial-rows" in os.readlink(f"/proc/self/fd/{one}")]
    for descriptor in rows:
        os.write(descriptor, b"\xff" * 2000)
    raise ValueError(f"there were {len(rows)} descriptors of rows")


def whole(array: NDArray[Any]) -> NDArray[Any]:
    """The array that this one is a part of: that of all slots."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _pipes() -> set[tuple[int, int]]:
    """The identities of what this process has open."""
    return {(one.st_dev, one.st_ino) for one in _open_files().values()}


def _open_files() -> dict[int, os.stat_result]:
    found = dict[int, os.stat_result]()
    for descriptor in range(3, 64):
        with suppress(OSError):
            found[descriptor] = os.fstat(descriptor)
    return found


# What pytest itself has open, such as the pipes between its own processes. A worker that is made by fork has
# it too, and garbage there would end the tests and not the environment. Workers of other kinds import this
# module anew, and do not have pytest's variables.
_OF_PYTEST = _pipes() if "PYTEST_VERSION" in os.environ else set[tuple[int, int]]()


def write_everywhere() -> None:
    """Write to every descriptor that somebody else has opened, where that does not wait."""
    for descriptor, one in _open_files().items():
        if (one.st_dev, one.st_ino) in _OF_PYTEST:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        with suppress(OSError):
            if poll.poll(0) == [(descriptor, select.POLLOUT)]:
                os.write(descriptor, b"stray write " * 150)


def start_threads() -> None:
    """Leave a thread behind that never ends, and one that fails."""
    threading.excepthook = lambda _: None
    threading.Thread(target=time.sleep, args=(1e6,)).start()
    threading.Thread(target=go_wrong, args=("raise",)).start()


def use_multiprocessing(*methods: str | None) -> None:
    """Compute something in a process of one's own, and fail if that does not work."""
    for method in methods:
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(abs, [-3]) == [3]


def end_children() -> None:
    """Start a program and a fork, and ask both to end; one that does not is waited for in vain."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])
    program.terminate()
    assert program.wait() == -signal.SIGTERM
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1e6,))
    forked.start()
    forked.terminate()
    forked.join()
    assert forked.exitcode == -signal.SIGTERM


# Faults by which an environment ends or meddles with its process, its descriptors or its memory.
ABUSES: dict[str, Callable[[], object]] = {
    "fork_and_return": lambda: fork("return"),
    "fork_and_raise": lambda: fork("raise"),
    "fork_and_stay": lambda: fork("stay"),
    "exit": lambda: os._exit(3),
    "exit_0": lambda: os._exit(0),
    "sys_exit": lambda: sys.exit(4),
    "abort": os.abort,
    "exec": lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),
    "threads": start_threads,
    "multiprocessing": lambda: use_multiprocessing("fork", "spawn", None),
    # In a worker only: in the trainer's process it would be the one that starts the workers.
    "forkserver": lambda: use_multiprocessing("forkserver"),
    "end_children": end_children,
    "write_everywhere": write_everywhere,
    "write_into_rows": write_into_rows,
    "close_all": lambda: os.closerange(0, 256),
}
# Faults that the backends live through without building anything anew.
HARMLESS = (
    *("fork_and_return", "fork_and_raise", "fork_and_stay"),
    *("threads", "multiprocessing", "forkserver", "end_children"),
)
# Faults that raise what is no `Exception`.
FINAL_ERRORS: dict[str, type[BaseException]] = {
    "generator_exit": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "interrupt": KeyboardInterrupt,
}


def go_wrong(fault: str) -> None:
    """Fail in the named way."""
    if fault in FINAL_ERRORS:
        raise FINAL_ERRORS[fault]("the end")
    if fault in ABUSES:
        ABUSES[fault]()
    if fault in SIGNALS:
        os.kill(os.getpid(), SIGNALS[fault])
    if fault == "late":
        time.sleep(LATE_S)
    if fault == "final":
        raise FinalError("the end")
    if fault == "half":
        os.write(reply_pipe(), b"\x01" * 11)
        os._exit(6)
    if fault == "garbage":
        os.write(reply_pipe(), b"\xff" * 100)
    if fault == "no_memory":
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        np.ones(2**28)
    if fault == "raise":
        raise ValueError("the toy is broken")
    if fault == "unpicklable":
        raise UnpicklableError("cannot be sent", object())
    if fault == "speechless":
        raise SpeechlessError
    if fault == "huge":
        raise ValueError("x" * 50_000_000)
    if fault == "escapes":
        raise ValueError("\x1b[2J\x1b]0;a title\x07\rgone")
    if fault == "import":
        __import__("a_module_that_is_not_there")
    if fault in ("sleep", "busy", "hold_gil"):
        os.write(1, b"hanging\n")
    if fault == "tell":
        raise ValueError(json.dumps(surroundings()))
    if fault == "sleep":
        time.sleep(1e6)
    if fault == "busy":
        while True:
            pass
    if fault == "hold_gil":
        ctypes.PyDLL(None).sleep(10**6)
    if fault == "close_pipes":
        os.closerange(3, 256)


@dataclass
class FaultyConfig(CountingConfig):
    """What fails, and where."""

    family: str = "Faulty"
    falls: bool = False
    fault: str = option("raise", "a name that go_wrong knows, or slot_error")
    where: str = option("step", "make_shard, reset, step, render, close or nowhere")
    at: int = option(2, "the step of the episode that fails")
    task_above: float = option(-1.0, "only slots fail whose task starts with more than this")
    times: int = option(0, "how often it fails, in all processes together; 0: always")
    folder: str = option(
        "", "where the failures are counted, so that a count outlives the process that failed"
    )
    again: str = option("", "what goes wrong when it is built after its first failure")
    again_times: int = option(1, "how often that goes wrong")


# Faults that leave a number in the rows that is none: (array, value).
CORRUPTIONS = {"nan_obs": ("obs", np.nan), "inf_obs": ("obs", -np.inf), "nan_reward": ("reward", np.nan)}


def still_to_fail(config: FaultyConfig) -> bool:
    """Whether one more failure is due."""
    return config.times == 0 or one_more(config.folder, "failure", config.times)


def one_more(folder: str, name: str, times: int) -> bool:
    """Whether something is to happen once more; counted by files, which outlive every process."""
    for number in range(times):
        try:
            os.close(os.open(os.path.join(folder, f"{name}-{number}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


class FaultyShard(CountingShard):
    """Counts, until it goes wrong."""

    def __init__(self, num_slots: int, config: FaultyConfig) -> None:
        super().__init__(num_slots, config)
        self._faulty = config

    def _meet(self, where: str, slots: NDArray[np.int64]) -> None:
        config = self._faulty
        if config.where != where:
            return
        hit = slots[self.tasks[slots, 0] > config.task_above]
        hit = hit[self.time[hit] == config.at] if where == "step" else hit
        if not len(hit) or not still_to_fail(config):
            return
        if config.fault in CORRUPTIONS:
            array, value = CORRUPTIONS[config.fault]
            getattr(self.rows, array)[hit[0]] = value
            return
        if config.fault != "slot_error":
            go_wrong(config.fault)
        if config.fault in HARMLESS:
            return
        try:
            go_wrong("raise")
        except ValueError as error:
            raise SlotError(int(hit[0]), str(error)) from error

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        super().reset(slots, tasks, seeds)
        self._meet("reset", slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        super().step(slots, actions)
        self._meet("step", slots)

    def render(self, slot: int) -> NDArray[np.uint8]:
        self._meet("render", np.array([slot]))
        return super().render(slot)

    def close(self) -> None:
        self._meet("close", np.arange(len(self.time)))


class FaultyFamily(CountingFamily):
    """A counting family that fails as its config says."""

    Config = FaultyConfig

    def __init__(self, config: FaultyConfig | None = None, **options: Any) -> None:
        self.faulty = config or FaultyConfig(**options)
        super().__init__(self.faulty)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        config = self.faulty
        failed = bool(config.again) and os.path.exists(os.path.join(config.folder, "failure-0"))
        if failed and one_more(config.folder, "again", config.again_times):
            go_wrong(config.again)
        if config.where == "make_shard" and still_to_fail(config):
            go_wrong(config.fault)
        return FaultyShard(num_slots, self.faulty)

"""Small families for tests: one whose rows tell where they come from, and ones that fail in every way an
environment can.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shard, SlotError, TaskFamily
from utils.options import option
from utils.seeding import uniforms

TASK_DIM = 2
ACTION_DIM = 2
OBS_DIM = TASK_DIM + 3


# -- counting: every number in a row can be recomputed from the row's own coordinates ------------------------


@dataclass
class CountingConfig(EnvConfig):
    """Options of the counting families."""

    family: str = "Counting"
    max_episode_steps: int = 7
    falls: bool = option(True, "end some episodes before the horizon, at a step that task and seed decide")


def noise_of(seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
    """[n] a number in [0, 1) that belongs to the seed of an episode."""
    return uniforms(seeds, 1)[:, 0]


def fall_step(
    tasks: NDArray[np.float64], seeds: NDArray[np.uint64], max_episode_steps: int
) -> NDArray[np.int64]:
    """[n] the step at which an episode terminates; beyond the horizon it is never reached."""
    spread = (uniforms(seeds, 2)[:, 1] + tasks[:, 0]) % 1.0
    return 1 + np.floor(spread * 1.5 * max_episode_steps).astype(np.int64)


def obs_of(task: NDArray[np.float64], noise: float, t: int, position: float) -> NDArray[np.float32]:
    """The observation [task, noise of the episode, t, sum of the first actions]."""
    return np.array([*task, noise, t, position], np.float32)


def reward_of(task: NDArray[np.float64], t: int, action: NDArray[Any]) -> float:
    """The reward of step t (from 1) of a task."""
    return float(t + 100.0 * task[0] + action[1])


class CountingShard(Shard):
    """Slots that count; the slot number appears in no row."""

    def __init__(self, num_slots: int, config: CountingConfig) -> None:
        self._config = config
        self.tasks = np.zeros((num_slots, TASK_DIM))
        self.noise = np.zeros(num_slots)
        self.time = np.zeros(num_slots, np.int64)
        self.position = np.zeros(num_slots)
        self.fall = np.zeros(num_slots, np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        self.tasks[slots] = tasks
        self.noise[slots] = noise_of(seeds)
        self.fall[slots] = (
            fall_step(tasks, seeds, self._config.max_episode_steps) if self._config.falls else 2**60
        )
        self.time[slots] = 0
        self.position[slots] = 0.0
        self.write(slots)

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        self.time[slots] += 1
        self.position[slots] += actions[:, 0]
        self.rows.reward[slots] = self.time[slots] + 100.0 * self.tasks[slots, 0] + actions[:, 1]
        self.rows.terminated[slots] = self.time[slots] >= self.fall[slots]
        self.write(slots)

    def coordinates(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """[n, OBS_DIM] what the rows of these slots say."""
        columns = [
            self.tasks[slots],
            self.noise[slots, None],
            self.time[slots, None],
            self.position[slots, None],
        ]
        return np.concatenate(columns, axis=1).astype(np.float32)

    def write(self, slots: NDArray[np.int64]) -> None:
        """Write observation and info of these slots."""
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[slots] = self.coordinates(slots)
        self.rows.info[slots, 0] = self.time[slots]

    def render(self, slot: int) -> NDArray[np.uint8]:
        return np.full((4, 6, 3), self.time[slot], np.uint8)


class CountingFamily(TaskFamily):
    """Observations are their own coordinates, so that a lost, doubled, stale or misplaced row is provable by
    algebra.
    """

    Config = CountingConfig
    config: CountingConfig

    def __init__(self, config: CountingConfig | None = None) -> None:
        super().__init__(config or CountingConfig())
        box = spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
        self.spec = EnvSpec(
            "Counting", box, spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32), TASK_DIM, info_names=("t",)
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return rng.uniform(size=(n, TASK_DIM)) + (10.0 if split == "test" else 0.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return CountingShard(num_slots, self.config)


class DelayedShard(CountingShard):
    """Takes its time, another one in every process and run."""

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        time.sleep(0.002 * np.random.default_rng().random())
        super().step(slots, actions)


class DelayedFamily(CountingFamily):
    """Counting with random delays of up to two milliseconds."""

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return DelayedShard(num_slots, self.config)


class DictCountingShard(CountingShard):
    """The same numbers in two arrays of different types."""

    def write(self, slots: NDArray[np.int64]) -> None:
        assert isinstance(self.rows.obs, dict)
        self.rows.obs["where"][slots] = self.coordinates(slots)
        self.rows.obs["count"][slots] = (self.time[slots] % 256).astype(np.uint8)[:, None, None]
        self.rows.info[slots, 0] = self.time[slots]


class DictCountingFamily(CountingFamily):
    """Counting with a Dict observation: a vector and a small picture."""

    def __init__(self, config: CountingConfig | None = None) -> None:
        super().__init__(config)
        parts = {
            "where": spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32),
            "count": spaces.Box(0, 255, (2, 3), np.uint8),
        }
        self.spec = EnvSpec(
            "DictCounting",
            spaces.Dict(parts),
            spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32),
            TASK_DIM,
            info_names=("t",),
        )

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return DictCountingShard(num_slots, self.config)


class LongTaskShard(Shard):
    """Shows the first and the last number of its task."""

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[slots] = tasks[:, [0, -1]]

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None: ...


class LongTaskFamily(TaskFamily):
    """Tasks of 100,000 numbers: more than a pipe holds."""

    def __init__(self) -> None:
        super().__init__(EnvConfig())
        self.spec = EnvSpec(
            "LongTask",
            spaces.Box(-np.inf, np.inf, (2,), np.float32),
            spaces.Box(-1.0, 1.0, (1,), np.float32),
            100_000,
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return rng.uniform(size=(n, self.spec.task_dim))

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return LongTaskShard()


# -- faults --------------------------------------------------------------------------------------------------


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
    ignored = [
        name
        for name in ("SIGHUP", "SIGINT", "SIGTERM")
        if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN
    ]
    blocked = sorted(signal.Signals(one).name for one in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    variables = {
        name: os.environ.get(name)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "WANDB_MODE")
    }
    heavy = [name for name in ("torch", "hydra", "wandb") if name in sys.modules]
    return {
        "ignored": ignored,
        "blocked": blocked,
        "variables": variables,
        "stdin": os.readlink("/proc/self/fd/0"),
        "heavy": heavy,
    }


SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "bus": signal.SIGBUS, "stop": signal.SIGSTOP}
"""Faults by which a process ends or stops itself at once."""
LATE_S = 0.5
"""How long the fault `late` takes, before the step goes on as if nothing had happened."""


def reply_pipe() -> int:
    """The pipe through which the worker that we are in answers."""
    frame: Any = sys._getframe()
    while frame.f_code.co_name != "serve_requests":
        frame = frame.f_back
    return frame.f_locals["descriptors"].replies


def go_wrong(fault: str) -> None:
    """Fail in the named way."""
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
    if fault == "import":
        __import__("a_module_that_is_not_there")
    if fault in ("sleep", "busy", "hold_gil"):
        os.write(1, b"hanging\n")
    if fault == "tell":
        raise ValueError(json.dumps(surroundings()))
    if fault == "exit":
        os._exit(3)
    if fault == "exit_0":
        os._exit(0)
    if fault == "sys_exit":
        sys.exit(4)
    if fault == "abort":
        os.abort()
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


CORRUPTIONS = {"nan_obs": ("obs", np.nan), "inf_obs": ("obs", -np.inf), "nan_reward": ("reward", np.nan)}
"""Faults that leave a number in the rows that is none: (array, value)."""


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

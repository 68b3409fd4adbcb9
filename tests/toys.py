"""Small families for tests, of which every number in a row can be recomputed from where it stands."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shard, TaskFamily
from utils.options import option
from utils.seeding import uniforms

TASK_DIM = 2
ACTION_DIM = 2
OBS_DIM = TASK_DIM + 3


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
    """Observations are their own coordinates: algebra shows a lost, doubled, stale or misplaced row."""

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

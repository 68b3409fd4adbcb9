"""What the benchmarks step: HalfCheetah, and a toy that takes a microsecond, some CPU or some waiting;
imports no torch, since workers import it.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.async_shard import AsyncShard
from envs.base import EnvConfig, EnvSpec, Shard, TaskFamily
from envs.meta.kernels import split_choices, sum_columns
from envs.meta.locomotion.mujoco_shard import MujocoShard, RobotModel, SlotIndex, Speeds
from utils.options import option

CHEETAH = RobotModel("half_cheetah.xml", frame_skip=5, noise=0.1, speeds=Speeds.normal)
CONTROL_COST = 0.1
# Of the toy: substeps, as many as take about a microsecond, and where its world ends.
FRAMES, EDGE = 2, 2.0

# -- HalfCheetah ---------------------------------------------------------------------------------------------


@dataclass
class CheetahConfig(EnvConfig):
    """Options of the benchmark's HalfCheetah."""

    family: str = "Cheetah"


class Cheetah(TaskFamily):
    """HalfCheetah that has to run forwards (task 1) or backwards (task -1): Gymnasium's model, observation
    (17 numbers) and reward.
    """

    Config = CheetahConfig

    def __init__(self, config: CheetahConfig | None = None) -> None:
        super().__init__(config or CheetahConfig())
        box = spaces.Box(-np.inf, np.inf, (17,), np.float32)
        self.spec = EnvSpec(
            "Cheetah", box, spaces.Box(-1.0, 1.0, (6,), np.float32), task_dim=1, info_names=("velocity",)
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, (-1.0, 1.0), split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return BareCheetahShard(num_slots, threads)


class BareCheetahShard(MujocoShard):
    """Slots of HalfCheetah."""

    def __init__(self, num_slots: int, threads: int) -> None:
        super().__init__(num_slots, threads, CHEETAH)
        self._direction = np.zeros(num_slots)

    def set_tasks(self, slots: NDArray[np.int64], tasks: NDArray[np.float64]) -> None:
        self._direction[slots] = tasks[:, 0]

    def position(self, at: SlotIndex) -> NDArray[np.float64]:
        return self.qpos[at, :1]

    def score(
        self,
        at: SlotIndex,
        ctrl: NDArray[np.float64],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        along = velocity[:, 0] * self._direction[at]
        self.rows.info[at, 0] = along
        return along - CONTROL_COST * sum_columns(ctrl * ctrl)

    def observe(self, at: SlotIndex, obs: NDArray[Any]) -> None:
        obs[at, :8] = self.qpos[at, 1:]
        obs[at, 8:] = self.qvel[at]


# -- the toy -------------------------------------------------------------------------------------------------


class Dot:
    """A point that steers towards a goal: about a microsecond of Python, and then `cpu_s` of CPU that keep
    the GIL.
    """

    __slots__ = ("cpu_s", "goal", "heading", "speed", "time", "x", "y")

    def __init__(self, cpu_s: float = 0.0) -> None:
        self.cpu_s = cpu_s
        self.begin(0.0, 0.0)

    def begin(self, goal: float, x: float) -> None:
        """Start an episode."""
        self.goal, self.x, self.y, self.heading, self.speed, self.time = goal, x, 0.0, 0.0, 0.0, 0

    def push(self, turn: float, gas: float) -> float:
        """One step; the reward."""
        turn = -1.0 if turn < -1.0 else min(turn, 1.0)
        gas = -1.0 if gas < -1.0 else min(gas, 1.0)
        for _ in range(FRAMES):
            self.heading = (self.heading + 0.2 * turn) % (2.0 * math.pi)
            self.speed = 0.9 * self.speed + 0.05 * gas
            self.x += self.speed * math.cos(self.heading)
            self.y += self.speed * math.sin(self.heading)
            distance = math.hypot(self.x, self.y)
            if distance > EDGE:
                self.x, self.y, self.speed = EDGE * self.x / distance, EDGE * self.y / distance, 0.0
        self.time += 1
        if self.cpu_s:
            end = time.thread_time() + self.cpu_s
            while time.thread_time() < end:
                pass
        return -math.hypot(self.x - math.cos(self.goal), self.y - math.sin(self.goal)) - 0.01 * (
            turn * turn + gas * gas
        )


@dataclass
class ToyConfig(EnvConfig):
    """Options of the toy."""

    family: str = "Toy"
    cpu_s: float = option(0.0, "seconds of CPU that a step takes besides its microsecond, keeping the GIL")
    wait_s: float = option(0.0, "seconds that a step waits")
    coroutines: bool = option(False, "wait in coroutines")


class Toy(TaskFamily):
    """Dots stepped one after the other by Python, as most environments are."""

    Config = ToyConfig
    config: ToyConfig

    def __init__(self, config: ToyConfig | None = None) -> None:
        super().__init__(config or ToyConfig())
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.spec = EnvSpec("Toy", box, spaces.Box(-1.0, 1.0, (2,), np.float32), task_dim=1)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return rng.uniform(0.0, 2.0 * math.pi, (n, 1))

    def make_shard(self, num_slots: int, threads: int = 1) -> Shard:
        return (WaitingToyShard if self.config.coroutines else ToyShard)(num_slots, self.config)


class ToyShard(Shard):
    """Slots of the toy, each stepped by a call of its own."""

    def __init__(self, num_slots: int, config: ToyConfig) -> None:
        self._dots = [Dot(config.cpu_s) for _ in range(num_slots)]
        self._wait_s = config.wait_s

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        for slot, task, seed in zip(slots.tolist(), tasks[:, 0].tolist(), seeds.tolist(), strict=True):
            self._dots[slot].begin(task, seed * 2.0**-64)
        self._write(slots, slots.tolist())

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        at, dots, wait_s, rewards = slots.tolist(), self._dots, self._wait_s, list[float]()
        for slot, (turn, gas) in zip(at, actions.tolist(), strict=True):
            if wait_s:
                time.sleep(wait_s)
            rewards.append(dots[slot].push(turn, gas))
        self.rows.reward[slots] = rewards
        self._write(slots, at)

    def _write(self, slots: NDArray[np.int64], at: list[int]) -> None:
        obs = self.rows.obs
        assert isinstance(obs, np.ndarray)
        obs[slots] = [(dot.x, dot.y, dot.time) for dot in (self._dots[slot] for slot in at)]


class WaitingToyShard(AsyncShard):
    """Slots of the toy that wait in coroutines, all at the same time."""

    def __init__(self, num_slots: int, config: ToyConfig) -> None:
        self._dots = [Dot(config.cpu_s) for _ in range(num_slots)]
        self._wait_s = config.wait_s

    async def reset_slot(self, slot: int, task: NDArray[np.float64], seed: int) -> None:
        self._dots[slot].begin(float(task[0]), seed * 2.0**-64)
        self._write(slot)

    async def step_slot(self, slot: int, action: Any) -> None:
        await asyncio.sleep(self._wait_s)
        self.rows.reward[slot] = self._dots[slot].push(*action.tolist())
        self._write(slot)

    def _write(self, slot: int) -> None:
        obs, dot = self.rows.obs, self._dots[slot]
        assert isinstance(obs, np.ndarray)
        obs[slot] = dot.x, dot.y, dot.time


class ToyEnv(gymnasium.Env[Any, Any]):
    """The same toy as a Gymnasium environment, for the peers."""

    def __init__(self, cpu_s: float = 0.0, wait_s: float = 0.0) -> None:
        spec = Toy().spec
        self.observation_space, self.action_space = spec.obs_space, spec.action_space
        self._dot, self._wait_s = Dot(cpu_s), wait_s

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._dot.begin(self.np_random.uniform(0.0, 2.0 * math.pi), self.np_random.uniform())
        return self._obs(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._wait_s:
            time.sleep(self._wait_s)
        reward = self._dot.push(*action.tolist())
        return self._obs(), reward, False, False, {}

    def _obs(self) -> NDArray[np.float32]:
        return np.array((self._dot.x, self._dot.y, self._dot.time), np.float32)


def burning_env(**_: Any) -> ToyEnv:
    """The toy with 5 ms of CPU in each step, for `env=Gymnasium`."""
    return ToyEnv(0.005)


gymnasium.register("Burning-v0", burning_env, max_episode_steps=10)

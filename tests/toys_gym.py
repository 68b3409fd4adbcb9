"""Small Gymnasium environments for tests, with every kind of space, and wrappers that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvSpec, Rows, arrays_of
from envs.interop.gymnasium_shard import GymnasiumShard, TaskSetter
from envs.interop.spaces import ActionWriter, ObsReader
from envs.layout import Layout

NUM_CHOICES = 4


class CountingEnv(gymnasium.Env[Any, Any]):
    """Observes [task, a number that belongs to the seed, t, the sum of the first actions].

    An episode ends after `length` steps.
    """

    def __init__(self, length: int = 10**9) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.length = length
        self.task = 0.0
        self.closed = False

    def observe(self) -> Any:
        return np.array([self.task, self.noise, self.t, self.position])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task = (options or {}).get("task", self.task)
        self.noise, self.t, self.position = self.np_random.random(), 0, 0.0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.t += 1
        self.position += float(np.ravel(action)[0])
        return (
            self.observe(),
            self.t + 0.5,
            self.t >= self.length,
            False,
            {"t": self.t, "junk": lambda: self, "loop": [self]},
        )

    def render(self) -> Any:
        return np.full((4, 6, 3), self.t, np.uint8)

    def close(self) -> None:
        self.closed = True


class TaskEnv(CountingEnv):
    """Counting, with tasks of its own: numbers or dicts, from its own stream or numpy's global one."""

    kind: str = "number"

    def __init__(self, kind: str = "number", length: int = 10**9) -> None:
        super().__init__(length)
        self.kind = kind
        self.told: list[Any] = []

    def sample_tasks(self, num_tasks: int) -> list[Any]:
        if self.kind == "objects":
            return [object() for _ in range(num_tasks)]
        if self.kind == "global":
            return [float(number) for number in np.random.uniform(size=num_tasks)]
        numbers = self.np_random.uniform(size=(num_tasks, 3))
        if self.kind == "number":
            return [float(number) for number in numbers[:, 0]]
        return [{"goal": number[:2].copy(), "level": int(10 * number[2])} for number in numbers]

    def set_task(self, task: Any) -> None:
        self.told.append(task)
        self.task = task["goal"][0] if isinstance(task, dict) else task


class SettableEnv(CountingEnv):
    """Takes a vector as its task and draws none."""

    def set_task(self, task: NDArray[np.float64]) -> None:
        self.task = float(task.sum())


class MaskedEnv(CountingEnv):
    """A Dict observation of every kind of part; an action that its mask forbids is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(NUM_CHOICES, start=2)
        self.observation_space = spaces.Dict(
            {
                "vector": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "picture": spaces.Box(0, 255, (2, 3, 1), np.uint8),
                "number": spaces.Discrete(5, start=-1),
                "bits": spaces.MultiBinary(3),
                "action_mask": spaces.MultiBinary(NUM_CHOICES),
            }
        )

    @property
    def mask(self) -> NDArray[np.int8]:
        return (np.arange(NUM_CHOICES) % 2 == self.t % 2).astype(np.int8)

    def observe(self) -> Any:
        vector, picture = np.array([self.noise, self.t]), np.full((2, 3, 1), self.t, np.uint8)
        bits = np.array([1, 0, self.t % 2], np.int8)
        return {
            "vector": vector,
            "picture": picture,
            "number": np.int64(self.t % 5 - 1),
            "bits": bits,
            "action_mask": self.mask,
        }

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self.mask[action - 2]:
            raise ValueError(f"action {action} is forbidden")
        return super().step(action)


class PictureEnv(CountingEnv):
    """Observes a picture; acts by two choices at once."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (4, 6, 3), np.uint8)
        self.action_space = spaces.MultiDiscrete([3, 2])
        self.taken: list[Any] = []

    def observe(self) -> Any:
        picture = np.full((4, 6, 3), self.t, np.uint8)
        picture[0, 0, 0] = int(255 * self.noise)
        return picture

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.taken.append(action.tolist())
        return super().step(action)


class OneBufferEnv(CountingEnv):
    """All copies write all their observations into the same array."""

    buffer = np.zeros(4)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class Altered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives something else than its environment does, from step `at` of an episode on (0: the reset)."""

    def __init__(self, env: gymnasium.Env[Any, Any], change: Callable[[Any], Any], at: int = 1) -> None:
        super().__init__(env)
        self._change, self._at = change, at

    def reset(self, **arguments: Any) -> Any:
        result = self.env.reset(**arguments)
        self._t = 0
        return self._change(result) if self._at == 0 else result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._t += 1
        return self._change(result) if self._t >= self._at > 0 else result


class SameStepAutoreset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins the next episode in the last step of the one before; the last observation is in the info."""

    def __init__(self, env: gymnasium.Env[Any, Any], key: str) -> None:
        super().__init__(env)
        self._key = key

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            start, fresh = self.env.reset()
            return start, reward, terminated, truncated, {**fresh, self._key: obs, "final_info": info}
        return obs, reward, terminated, truncated, info


def bound_shard(
    make: Callable[[], Any],
    num_slots: int = 1,
    task: TaskSetter | None = None,
    info_names: tuple[str, ...] = (),
) -> tuple[GymnasiumShard, Rows]:
    """A shard of these environments with rows of its own."""
    probe = make()
    reader, writer = ObsReader(probe.observation_space, probe.action_space), ActionWriter(probe.action_space)
    shard = GymnasiumShard(make, num_slots, reader, writer, task=task, info_names=info_names)
    rows = Layout(EnvSpec("Toy", reader.space, writer.space, 1, info_names)).allocate(num_slots)
    shard.bind(rows)
    return shard, rows


def start(
    shard: GymnasiumShard,
    slots: list[int],
    seeds: list[int] | None = None,
    tasks: list[list[float]] | None = None,
) -> None:
    """Reset these slots."""
    task = np.zeros((len(slots), 1)) if tasks is None else np.array(tasks, np.float64)
    shard.reset(np.array(slots), task, np.array(slots if seeds is None else seeds, np.uint64))


def act(shard: GymnasiumShard, slots: list[int], actions: Any) -> None:
    """Step these slots."""
    shard.step(np.array(slots), np.asarray(actions))


def written_arrays(rows: Rows) -> list[NDArray[Any]]:
    """The arrays of rows that a shard writes."""
    return [*arrays_of(rows.obs), rows.reward, rows.terminated, rows.truncated, rows.info]

"""Gymnasium: any registered Gymnasium environment, or any factory of one, as a family."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shelf, Split, TaskFamily
from envs.interop.gymnasium_shard import GymnasiumShard, MakeEnv, TaskSetter, built_env, close_env, error_text
from envs.interop.spaces import ActionWriter, ObsReader, SpaceError
from envs.meta.kernels import check_split
from envs.meta.third_party.registered_env import registered_env
from utils.options import OptionError, from_keywords, option

# Seeds are below this number, because simulators written in C keep them in a signed int.
SEEDS = 2**31

# (rng, n, split) -> [n, task_dim] tasks.
Sampler = Callable[[np.random.Generator, int, str], NDArray[np.float64]]


class TaskBy(Enum):
    """How an environment gets its task.

    By `set_task(task)`, by `reset(options={"task": task})`, by the seed of its resets, not at all, or
    (`auto`) by `set_task` where it has that method.
    """

    auto = "auto"
    set_task = "set_task"
    options = "options"
    seed = "seed"
    none = "none"


@dataclass
class GymnasiumConfig(EnvConfig):
    """Options of Gymnasium; k=1, since most environments have no tasks to adapt to."""

    family: str = "Gymnasium"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(0, "H: time limit of an episode; 0: the environment's own", low=0)
    id: str = option("Pendulum-v1", "a registered id, or module:id, which imports the module first")
    arguments: list[str] = option(
        [],
        'arguments of its constructor: ["map_name=8x8","is_slippery=false"]',
    )
    wrappers: list[str] = option([], 'wrappers, the innermost first: ["minigrid.wrappers:ImgObsWrapper"]')
    task_by: TaskBy = option(
        TaskBy.auto,
        "how it gets its task; auto: by set_task where it has that method",
    )
    rescale_actions: bool = option(
        True, "stretch actions in [-1, 1] to the bounds of the environment's actions"
    )
    info_names: list[str] = option([], "the numbers of its info that are recorded; 0 where they are missing")
    success: str | None = option(None, "the number of its info that is above 0 once an episode has succeeded")

    def for_pictures(self) -> Self:
        """Adds the argument that most environments need to draw, unless the user gave one."""
        if any(argument.startswith("render_mode=") for argument in self.arguments):
            return self
        return replace(self, arguments=[*self.arguments, "render_mode=rgb_array"])


class GymnasiumFamily(TaskFamily):
    """This family plays any Gymnasium environment, registered or made by a factory.

    Task: by `task_by`. `set_task`: tasks are drawn by the environment's `sample_tasks(n)` and set by its
    `set_task(task)`, the convention of the published meta-RL environments (both are methods of
    `env.unwrapped`); a task may be a number, a vector, or a dict of them, and becomes one flat vector.
    `options`: tasks are drawn alike and passed in `reset(options={"task": task})`. `seed`: the task is a
    number that seeds every reset, so that all episodes of a trial play in the same generated world (mazes,
    levels); only here the splits are known to be disjoint. `none`: there is one task, [0]; this is an
    ordinary environment, each episode with a seed of its own. `auto` takes `set_task` where the environment
    has it, else `none`.

    Observation, Action: the environment's, by the encodings in envs/interop/spaces.py; continuous actions are
    stretched from [-1, 1] (`rescale_actions`). An `action_mask` in a Dict observation reaches the agent under
    that key. Reward, terminated, truncated: the environment's own. H: a number given as `max_episode_steps`
    replaces the time limit that an id is registered with, as in `gymnasium.make`; 0 takes the registered one,
    and is refused where there is none. k=1. Info: `info_names`. No quantity is added.

    The constructor builds the environment once, reads its spaces and its methods, and closes it; a
    distribution of tasks keeps one more environment to draw them from. In scripts `from_factory` takes a
    factory in place of an id.
    """

    Config = GymnasiumConfig
    shelf = Shelf.third_party
    config: GymnasiumConfig

    def __init__(
        self, config: GymnasiumConfig, factory: MakeEnv | None = None, sample_tasks: Sampler | None = None
    ) -> None:
        if factory is None:
            self._make: MakeEnv = registered_env(
                config.id, config.max_episode_steps, config.arguments, config.wrappers
            )
            self._name = config.id
        else:
            self._make = factory
            self._name = getattr(factory, "__name__", type(factory).__name__)
        self._sampler = sample_tasks
        self._task_sampler_env: gymnasium.Env[Any, Any] | None = None
        # One environment is built to read what it is; every shard builds its own.
        env = self._built()
        try:
            limit = config.max_episode_steps or self._own_limit(env)
            super().__init__(replace(config, max_episode_steps=limit))
            self._read_spaces(env)
            self._task_by = self._resolved_task_by(env)
            self._format = self._task_format(env)
            nondeterministic = env.spec is not None and env.spec.nondeterministic
        finally:
            close_env(env)
        # Success is one of the recorded infos, and each name is recorded once.
        info_names = [*config.info_names, *([config.success] if config.success else [])]
        self.spec = EnvSpec(
            name="Gymnasium",
            obs_space=self._reader.space,
            action_space=self._writer.space,
            task_dim=self._format.size,
            info_names=tuple(dict.fromkeys(info_names)),
            deterministic=not nondeterministic,
            split=Split.disjoint if self._task_by is TaskBy.seed else Split.shared,
            success=config.success,
        )

    @classmethod
    def from_factory(cls, factory: MakeEnv, *, sample_tasks: Sampler | None = None, **options: Any) -> Self:
        """The family of the environments that `factory()` makes.

        The factory is sent to workers by cloudpickle, so it may be a lambda. `sample_tasks(rng, n, split)`
        draws [n, task_dim] tasks, for environments that do not draw them themselves.
        """
        return cls(from_keywords(GymnasiumConfig, "GymnasiumFamily", options), factory, sample_tasks)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        if self._sampler is not None and self._task_by is not TaskBy.none:
            return self._format.checked(np.asarray(self._sampler(rng, n, split), np.float64), n, self._name)
        if self._task_by is TaskBy.seed:
            # Even seeds are for training and odd ones for tests, so the splits never meet.
            return (2 * rng.integers(SEEDS // 2, size=(n, 1)) + (split == "test")).astype(np.float64)
        if self._task_by is TaskBy.none or n == 0:
            return np.zeros((n, self.spec.task_dim))
        # The environment draws its tasks itself; it stays open, and is closed with the family.
        if self._task_sampler_env is None:
            self._task_sampler_env = self._built()
            weakref.finalize(self, close_env, self._task_sampler_env)
        return self._format.vectors(_drawn(self._task_sampler_env, n, int(rng.integers(SEEDS))), self._name)

    def make_shard(self, num_slots: int, threads: int = 1) -> GymnasiumShard:
        # The slots of a shard are separate environments, stepped one after the other.
        setter = TaskSetter(self._task_by.value, self._format.task)
        return GymnasiumShard(
            self._make, num_slots, self._reader, self._writer, task=setter, info_names=self.spec.info_names
        )

    def __getstate__(self) -> dict[str, Any]:
        # An environment is not sent to workers.
        return self.__dict__ | {"_task_sampler_env": None}

    # -- what the environment is -----------------------------------------------------------------------------

    def _built(self) -> gymnasium.Env[Any, Any]:
        """A new environment."""
        try:
            return built_env(self._make)
        except Exception as error:
            raise OptionError(f"{self._name} cannot be built: {error_text(error)}") from error

    def _read_spaces(self, env: gymnasium.Env[Any, Any]) -> None:
        """How actions are written to this environment and its observations are read."""
        try:
            self._writer = ActionWriter(env.action_space, self.config.rescale_actions)
            self._reader = ObsReader(env.observation_space, env.action_space)
        except SpaceError as error:
            raise OptionError(f"{self._name} {error}.") from None

    def _own_limit(self, env: gymnasium.Env[Any, Any]) -> int:
        """The time limit that the environment is registered with."""
        limit = env.spec.max_episode_steps if env.spec is not None else None
        if limit is None:
            raise OptionError(f"{self._name} has no time limit of its own: give max_episode_steps.")
        return limit

    def _resolved_task_by(self, env: gymnasium.Env[Any, Any]) -> TaskBy:
        """How this environment gets its task, `auto` resolved."""
        task_by = self.config.task_by
        has_set_task = callable(getattr(env.unwrapped, "set_task", None))
        draws_tasks = callable(getattr(env.unwrapped, "sample_tasks", None))
        # `auto` never refuses: an environment without set_task has one task.
        if task_by is TaskBy.auto:
            task_by = TaskBy.set_task if has_set_task else TaskBy.none
        if task_by is TaskBy.set_task and not has_set_task:
            raise OptionError(f"{self._name} has no set_task(task): choose another task_by.")
        # Tasks come from the environment, or from the sampler of `from_factory`.
        needs_tasks = task_by in (TaskBy.set_task, TaskBy.options)
        if needs_tasks and not draws_tasks and self._sampler is None:
            raise OptionError(
                f"{self._name} has no sample_tasks(n) to draw tasks from: "
                "give them by GymnasiumFamily.from_factory(..., sample_tasks=...), "
                "or set task_by=none to play the one that it starts with."
            )
        return task_by

    def _task_format(self, env: gymnasium.Env[Any, Any]) -> TaskFormat:
        """The format of the environment's tasks, found by drawing one."""
        # The single task 0, or the seed.
        if self._task_by in (TaskBy.none, TaskBy.seed):
            return TaskFormat((("", ()),), (False,))
        if self._sampler is not None:
            task = np.asarray(self._sampler(np.random.default_rng(0), 1, "train"))
            return TaskFormat((("", (task.shape[-1],)),), (False,))
        return TaskFormat.of(_drawn(env, 1, 0)[0], self._name)


@dataclass(frozen=True)
class TaskFormat:
    """How an environment writes a task: as a number, as a vector, or as a dict of them.

    The parts are sorted by their keys; the key "" means that the task is no dict.
    """

    # The (key, shape) of each part.
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    # Which parts are whole numbers.
    whole: tuple[bool, ...]

    @classmethod
    def of(cls, task: Any, owner: str) -> TaskFormat:
        """The format of one task."""
        if isinstance(task, Mapping):
            named = {str(key): np.asarray(task[key]) for key in sorted(task)}
        else:
            named = {"": np.asarray(task)}
        if not named or any(part.dtype.kind not in "fiub" for part in named.values()):
            raise OptionError(
                f"{owner} draws tasks of type {type(task).__name__}, which are no numbers, vectors "
                "or dicts of them: give an environment that numbers its tasks."
            )
        return cls(
            tuple((key, part.shape) for key, part in named.items()),
            tuple(part.dtype.kind != "f" for part in named.values()),
        )

    @property
    def size(self) -> int:
        """The length of a task's vector."""
        return sum(int(np.prod(shape)) for _, shape in self.parts)

    def vectors(self, tasks: Sequence[Any], owner: str) -> NDArray[np.float64]:
        """[n, size] these tasks as vectors."""
        for task in tasks:
            parts = TaskFormat.of(task, owner).parts
            if parts != self.parts:
                raise ValueError(f"{owner} draws tasks of several shapes: {self.parts}, then {parts}.")
        are_dicts = self.parts[0][0] != ""
        rows = [
            np.concatenate([np.ravel(task[key] if are_dicts else task) for key, _ in self.parts])
            for task in tasks
        ]
        return np.array(rows, np.float64)

    def checked(self, tasks: NDArray[np.float64], n: int, owner: str) -> NDArray[np.float64]:
        """Tasks that are vectors already, if they have the right shape."""
        if tasks.shape != (n, self.size):
            raise ValueError(
                f"The sample_tasks of {owner} drew tasks of shape {tasks.shape}, not {(n, self.size)}."
            )
        return tasks

    def task(self, vector: NDArray[np.float64]) -> Any:
        """The task of a vector, as the environment wrote it.

        Numbers become Python's numbers, and vectors become arrays of their own.
        """
        task, start = {}, 0
        for (key, shape), whole in zip(self.parts, self.whole, strict=True):
            size = int(np.prod(shape))
            part = vector[start : start + size].reshape(shape)
            # Whole numbers come back as integers, since environments use them as indices.
            part = np.rint(part).astype(np.int64) if whole else part.copy()
            task[key] = part if shape else part.item()
            start += size
        # A task that is no dict is its only part, which has the key "".
        return task.get("", task)


def _drawn(env: gymnasium.Env[Any, Any], n: int, seed: int) -> Sequence[Any]:
    """Tasks that the environment draws.

    They are a function of the seed, whether the environment draws from its own stream or from a global one.
    """
    unwrapped: Any = env.unwrapped
    # Some environments draw from their own stream, others from numpy's or Python's: all are seeded.
    with _global_streams(seed):
        env.reset(seed=seed)
        tasks = unwrapped.sample_tasks(n)
    if len(tasks) != n:
        raise ValueError(f"{type(unwrapped).__name__}.sample_tasks({n}) drew {len(tasks)} tasks.")
    return list(tasks)


@contextmanager
def _global_streams(seed: int) -> Iterator[None]:
    """Seeds the global streams of Python and numpy; afterwards they are as they were."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)

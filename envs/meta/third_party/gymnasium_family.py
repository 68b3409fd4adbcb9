"""Gymnasium: any registered Gymnasium environment, or any factory of one, as a family."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import logging
import random
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.envs import registration
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Shelf, Split, TaskFamily
from envs.interop.gymnasium_shard import GymnasiumShard, MakeEnv, TaskSetter, built_env, close_env, error_text
from envs.interop.spaces import ActionWriter, ObsReader, SpaceError
from envs.meta.kernels import check_split
from utils.options import OptionError, from_keywords, option

SEEDS = 2**31
"""Seeds are below this: simulators written in C keep them in a signed int."""

Sampler = Callable[[np.random.Generator, int, str], NDArray[np.float64]]
"""(rng, n, split) -> [n, task_dim] tasks."""

_log = logging.getLogger(__name__)


class TaskBy(Enum):
    """How an environment is told its task: `set_task(task)`, `reset(options={"task": task})`, the seed of its
    resets, not at all, or by `set_task` where it has that (`auto`).
    """

    auto = "auto"
    set_task = "set_task"
    options = "options"
    seed = "seed"
    none = "none"


@dataclass
class GymnasiumConfig(EnvConfig):
    """Options of Gymnasium; one episode in a trial, since most environments have no tasks to adapt to."""

    family: str = "Gymnasium"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(0, "H: time limit of an episode; 0: the environment's own", low=0)
    id: str = option(
        "Pendulum-v1", "a registered id, or module:id, which imports the module that registers it"
    )
    arguments: list[str] = option(
        [],
        'of its constructor, as name=value with a JSON value or a word: ["map_name=8x8","is_slippery=false"]',
    )
    wrappers: list[str] = option(
        [], 'put around it, the innermost first, as module:name: ["minigrid.wrappers:ImgObsWrapper"]'
    )
    task_by: TaskBy = option(
        TaskBy.auto,
        "how it is told its task: set_task, options, seed or none; auto: set_task where it has that",
    )
    rescale_actions: bool = option(
        True, "let the policy act in [-1, 1], stretched to the bounds of the environment's actions"
    )
    info_names: list[str] = option([], "numbers of its info to record; 0 where they are missing")
    success: str | None = option(None, "the number of its info that is above 0 once an episode has succeeded")

    def for_pictures(self) -> Self:
        """With the argument that most environments need to draw, unless the user gave one."""
        if any(argument.startswith("render_mode=") for argument in self.arguments):
            return self
        return replace(self, arguments=[*self.arguments, "render_mode=rgb_array"])


class GymnasiumFamily(TaskFamily):
    """Any Gymnasium environment: a registered id, in `wrappers` where it needs them, or in scripts a factory
    (`from_factory`).

    Task: by `task_by`. `set_task`: drawn by the environment's `sample_tasks(n)` and told by its
    `set_task(task)`, the convention of the published meta-RL environments (looked for in `env.unwrapped`); a
    task may be a number, a vector, or a dict of them, and becomes one flat vector. `options`: drawn alike,
    told by `reset(options={"task": task})`. `seed`: the task is a number that seeds every reset, so that all
    episodes of a trial play in the same generated world (mazes, levels); only here the splits are known to be
    disjoint. `none`: there is one task, [0]; an ordinary environment, each episode with a seed of its own.
    `auto` takes `set_task` where the environment has it, else `none`.

    Observation, Action: the environment's, by the encodings in envs/interop/spaces.py; continuous actions are
    stretched from [-1, 1] (`rescale_actions`). An `action_mask` in a Dict observation reaches the agent under
    that key. Reward, terminated, truncated: the environment's own. H: a number given as `max_episode_steps`
    replaces the time limit that an id is registered with, as in `gymnasium.make`; 0 takes the registered one,
    and is refused where there is none. k=1. Info: `info_names`. No quantity is added.

    The environment is built once here, to look at it, and closed; a distribution of tasks keeps one more to
    draw them from.
    """

    Config = GymnasiumConfig
    shelf = Shelf.third_party
    config: GymnasiumConfig

    def __init__(
        self, config: GymnasiumConfig, factory: MakeEnv | None = None, sample_tasks: Sampler | None = None
    ) -> None:
        self._make = factory or _registered(config)
        self._sampler = sample_tasks
        self._name = config.id if factory is None else getattr(factory, "__name__", type(factory).__name__)
        self._of_sampling: gymnasium.Env[Any, Any] | None = None
        env = self._built()
        try:
            super().__init__(
                replace(config, max_episode_steps=config.max_episode_steps or self._own_limit(env))
            )
            try:
                self._writer = ActionWriter(env.action_space, config.rescale_actions)
                self._reader = ObsReader(env.observation_space, env.action_space)
            except SpaceError as error:
                raise OptionError(f"{self._name} {error}.") from None
            self._by = self._way(env)
            self._format = self._task_format(env)
            nondeterministic = env.spec is not None and env.spec.nondeterministic
        finally:
            close_env(env)
        self.spec = EnvSpec(
            name="Gymnasium",
            obs_space=self._reader.space,
            action_space=self._writer.space,
            task_dim=self._format.size,
            info_names=tuple(
                dict.fromkeys([*config.info_names, *([config.success] if config.success else [])])
            ),
            deterministic=not nondeterministic,
            split=Split.disjoint if self._by is TaskBy.seed else Split.shared,
            success=config.success,
        )

    @classmethod
    def from_factory(cls, factory: MakeEnv, *, sample_tasks: Sampler | None = None, **options: Any) -> Self:
        """The family of the environments that `factory()` makes; it is sent to workers by cloudpickle, so a
        lambda will do.

        `sample_tasks(rng, n, split)` draws [n, task_dim] tasks, for environments that do not draw them
        themselves.
        """
        return cls(from_keywords(GymnasiumConfig, "GymnasiumFamily", options), factory, sample_tasks)

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        if self._sampler is not None and self._by is not TaskBy.none:
            return self._format.checked(np.asarray(self._sampler(rng, n, split), np.float64), n, self._name)
        if self._by is TaskBy.seed:
            return (2 * rng.integers(SEEDS // 2, size=(n, 1)) + (split == "test")).astype(np.float64)
        if self._by is TaskBy.none or n == 0:
            return np.zeros((n, self.spec.task_dim))
        if self._of_sampling is None:
            self._of_sampling = self._built()
            weakref.finalize(self, close_env, self._of_sampling)
        return self._format.vectors(_drawn(self._of_sampling, n, int(rng.integers(SEEDS))), self._name)

    def make_shard(self, num_slots: int, threads: int = 1) -> GymnasiumShard:
        setter = TaskSetter(self._by.value, self._format.task)
        return GymnasiumShard(
            self._make, num_slots, self._reader, self._writer, task=setter, info_names=self.spec.info_names
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_of_sampling": None}  # an environment does not travel

    # -- looking at the environment --------------------------------------------------------------------------

    def _built(self) -> gymnasium.Env[Any, Any]:
        try:
            return built_env(self._make)
        except Exception as error:
            raise OptionError(f"{self._name} cannot be built: {error_text(error)}") from error

    def _own_limit(self, env: gymnasium.Env[Any, Any]) -> int:
        limit = env.spec.max_episode_steps if env.spec is not None else None
        if limit is None:
            raise OptionError(f"{self._name} has no time limit of its own: give max_episode_steps.")
        return limit

    def _way(self, env: gymnasium.Env[Any, Any]) -> TaskBy:
        """How this environment is told its task."""
        by = self.config.task_by
        sets, draws = (callable(getattr(env.unwrapped, name, None)) for name in ("set_task", "sample_tasks"))
        if by is TaskBy.auto:
            by = TaskBy.set_task if sets else TaskBy.none
        if by is TaskBy.set_task and not sets:
            raise OptionError(f"{self._name} has no set_task(task): choose another task_by.")
        if by in (TaskBy.set_task, TaskBy.options) and not draws and self._sampler is None:
            raise OptionError(
                f"{self._name} has no sample_tasks(n) to draw tasks from: "
                "give them by GymnasiumFamily.from_factory(..., sample_tasks=...), or set task_by=none to play the one that it starts with."
            )
        return by

    def _task_format(self, env: gymnasium.Env[Any, Any]) -> TaskFormat:
        if self._by in (TaskBy.none, TaskBy.seed):
            return TaskFormat((("", ()),), (False,))
        if self._sampler is not None:
            return TaskFormat(
                (("", (np.asarray(self._sampler(np.random.default_rng(0), 1, "train")).shape[-1],)),),
                (False,),
            )
        return TaskFormat.of(_drawn(env, 1, 0)[0], self._name)


@dataclass(frozen=True)
class TaskFormat:
    """How an environment writes a task: a number, a vector, or a dict of them (by sorted keys; the key ""
    means that it is no dict).
    """

    parts: tuple[tuple[str, tuple[int, ...]], ...]
    """(key, shape)"""
    whole: tuple[bool, ...]
    """Which parts are whole numbers."""

    @classmethod
    def of(cls, task: Any, owner: str) -> TaskFormat:
        """The format of one task."""
        named = (
            {str(key): np.asarray(task[key]) for key in sorted(task)}
            if isinstance(task, Mapping)
            else {"": np.asarray(task)}
        )
        if not named or any(part.dtype.kind not in "fiub" for part in named.values()):
            raise OptionError(
                f"{owner} draws tasks of type {type(task).__name__}, which are no numbers, vectors or dicts of them: "
                "give an environment that numbers its tasks."
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
            found = TaskFormat.of(task, owner).parts
            if found != self.parts:
                raise ValueError(f"{owner} draws tasks of several shapes: {self.parts}, then {found}.")
        dicts = self.parts[0][0] != ""
        rows = [
            np.concatenate([np.ravel(task[key] if dicts else task) for key, _ in self.parts])
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
        """The task of a vector, as the environment wrote it: numbers as Python's, vectors as arrays of their
        own.
        """
        found, at = {}, 0
        for (key, shape), whole in zip(self.parts, self.whole, strict=True):
            size = int(np.prod(shape))
            part = vector[at : at + size].reshape(shape)
            part = np.rint(part).astype(np.int64) if whole else part.copy()
            found[key] = part if shape else part.item()
            at += size
        return found.get("", found)


def _drawn(env: gymnasium.Env[Any, Any], n: int, seed: int) -> Sequence[Any]:
    """Tasks that the environment draws, decided by the seed, whether it draws them from its own stream or
    from a global one.
    """
    unwrapped: Any = env.unwrapped
    with _global_streams(seed):
        env.reset(seed=seed)
        tasks = unwrapped.sample_tasks(n)
    if len(tasks) != n:
        raise ValueError(f"{type(unwrapped).__name__}.sample_tasks({n}) drew {len(tasks)} tasks.")
    return list(tasks)


@contextmanager
def _global_streams(seed: int) -> Iterator[None]:
    """The global streams of Python and numpy, seeded; afterwards they are as they were."""
    python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)


# -- registered environments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Registered:
    """Makes a registered environment, and wraps it; it carries the registration itself, which a worker may
    not have.
    """

    registration: registration.EnvSpec
    max_episode_steps: int | None
    arguments: dict[str, Any]
    wrappers: tuple[Callable[[Any], Any], ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        # Gymnasium's own checker looks at the first step only, and GymnasiumShard at every one.
        env: Any = gymnasium.make(
            self.registration,
            max_episode_steps=self.max_episode_steps,
            disable_env_checker=True,
            **self.arguments,
        )
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def _registered(config: GymnasiumConfig) -> Registered:
    module, _, name = config.id.rpartition(":")
    if module:
        _imported(module, f"id={config.id}")
    try:
        found = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        known = {one.lower(): one for one in sorted(registration.registry)}
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
        hint = f" Did you mean {known[close[0]]!r}?" if close else ""
        raise OptionError(
            f"Gymnasium knows no environment {name!r}.{hint} Another package's is written module:id, which imports the module that registers it."
        ) from error
    arguments = dict(_argument(one) for one in config.arguments)
    if "render_mode" not in arguments and _can_draw(found):
        arguments["render_mode"] = "rgb_array"  # what it costs, it costs when a picture is asked for
    if (
        found.max_episode_steps
        and config.max_episode_steps
        and found.max_episode_steps != config.max_episode_steps
    ):
        _log.info(
            "%s: episodes of %d steps, registered are %d.",
            config.id,
            config.max_episode_steps,
            found.max_episode_steps,
        )
    return Registered(
        found, config.max_episode_steps or None, arguments, tuple(_wrapper(one) for one in config.wrappers)
    )


def _imported(module: str, asked: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OptionError(
            f"{asked} needs the package {module}, which cannot be imported ({error})."
        ) from error


def _wrapper(text: str) -> Callable[[Any], Any]:
    module, colon, name = text.rpartition(":")
    if not module or not colon or not name.isidentifier():
        raise OptionError(f"wrappers: {text!r} should be module:name.")
    found = getattr(_imported(module, f"wrappers: {text}"), name, None)
    if not callable(found):
        raise OptionError(f"wrappers: {module} has no {name!r} to call.")
    return found


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise OptionError(f"arguments: {text!r} should be name=value.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _can_draw(found: registration.EnvSpec) -> bool:
    """Whether an environment draws pictures and takes a `render_mode` (what it inherits may draw, and its
    constructor take nothing).

    False where its class cannot be had, which is told when it is built.
    """
    try:
        made_by = (
            found.entry_point
            if callable(found.entry_point)
            else registration.load_env_creator(found.entry_point or "")
        )
        takes = inspect.signature(made_by).parameters
        named = "render_mode" in takes or any(one.kind is one.VAR_KEYWORD for one in takes.values())
        return named and "rgb_array" in (getattr(made_by, "metadata", {}).get("render_modes") or ())
    except Exception:  # noqa: BLE001 - importing it runs third-party code
        return False

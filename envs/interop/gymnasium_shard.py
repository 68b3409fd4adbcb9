"""Third-party Gymnasium environments as a shard: one copy per slot, checked at every step."""

from __future__ import annotations

import logging
import os
import platform
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envs.base import Obs, Shard, SlotError, paired_arrays
from envs.interop.spaces import ActionWriter, ObsReader, ValueRefused, shortened

MakeEnv = Callable[[], Any]

# Where environments that reset themselves within the last step of an episode put its true observation: in
# Gymnasium since 1.0, in Gymnasium before, in Stable-Baselines3.
FINAL_OBS = ("final_obs", "final_observation", "terminal_observation")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskSetter:
    """How an environment gets its task."""

    # `none`, `set_task`, `options` (`reset(options={"task": task})`) or `seed` (the seed of the reset).
    by: str = "none"
    # Turns our vector into the task as the environment knows it.
    decode: Callable[[NDArray[np.float64]], Any] = np.copy


class GymnasiumShard(Shard):
    """Slots of any Gymnasium environment, an instance each.

    Everything that an environment returns is checked (envs/interop/spaces.py) before any of it is stored, and
    storing copies it. Every episode is started by `reset(seed=...)`, also where a wrapper has begun one by
    itself. Of the infos only `info_names` are read; missing ones are 0. Both flags at once are a termination.
    Each copy is seeded by its episode alone, so that it does not matter which slot plays it.
    """

    def __init__(
        self,
        make: MakeEnv,
        num_slots: int,
        reader: ObsReader,
        writer: ActionWriter,
        *,
        task: TaskSetter | None = None,
        info_names: tuple[str, ...] = (),
    ) -> None:
        self._reader, self._writer = reader, writer
        self._task = task or TaskSetter()
        self._info_names = info_names
        self._envs: list[gymnasium.Env[Any, Any]] = []
        # If one copy cannot be built, those that were built before it must not stay open.
        try:
            for _ in range(num_slots):
                self._envs.append(built_env(make))
                self._check_spaces(self._envs[-1])
        except BaseException:
            self.close()
            raise

    def _check_spaces(self, env: gymnasium.Env[Any, Any]) -> None:
        """Refuse a copy whose spaces are not those that the family was built with."""
        for name, expected, actual in (
            ("observation", self._reader.raw, env.observation_space),
            ("action", self._writer.raw, env.action_space),
        ):
            if actual != expected:
                raise RuntimeError(
                    f"The environment has another {name} space each time it is built: "
                    f"{expected}, then {actual}."
                )

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start an episode of each of these copies."""
        for slot, task, seed in zip(slots.tolist(), tasks, seeds.tolist(), strict=True):
            arguments = self._set_task(slot, task, seed)
            result = _call(slot, "reset", self._envs[slot].reset, **arguments)
            if not (isinstance(result, tuple) and len(result) == 2):
                kind = _kind_of(result)
                raise SlotError(slot, f"reset returned {kind}, not (observation, info): {_OLD_API}")
            obs, info = result
            self._store(slot, *self._read(slot, obs, info))

    def _set_task(self, slot: int, task: NDArray[np.float64], seed: int) -> dict[str, Any]:
        """Give the environment its task; the arguments that its reset still needs."""
        by = self._task.by
        # Simulators written in C take seeds of 31 bits.
        arguments: dict[str, Any] = {"seed": seed % 2**31}
        if by == "seed":
            arguments["seed"] = int(task[0])
        elif by == "set_task":
            # Wrappers do not pass unknown methods on, so it is called on the environment inside them.
            unwrapped: Any = self._envs[slot].unwrapped
            _call(slot, "set_task", unwrapped.set_task, self._task.decode(task))
        elif by == "options":
            arguments["options"] = {"task": self._task.decode(task)}
        return arguments

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step these copies, one after the other."""
        rows = self.rows
        for slot, action in zip(slots.tolist(), self._writer.convert(actions, slots), strict=True):
            result = _call(slot, "step", self._envs[slot].step, action)
            if not (isinstance(result, tuple) and len(result) == 5):
                raise SlotError(
                    slot,
                    f"step returned {_kind_of(result)}, "
                    f"not (observation, reward, terminated, truncated, info): {_OLD_API}",
                )
            # First everything is checked, then everything is stored: an error leaves the row as it was.
            obs, reward, terminated, truncated, info = result
            reward = _number(slot, "reward", reward)
            terminated, truncated = _flag(slot, "terminated", terminated), _flag(slot, "truncated", truncated)
            if (terminated or truncated) and isinstance(info, Mapping):
                obs, info = _end_of_episode(obs, info)
            self._store(slot, *self._read(slot, obs, info))
            rows.reward[slot] = reward
            rows.terminated[slot] = terminated
            rows.truncated[slot] = truncated and not terminated

    def _read(self, slot: int, obs: Any, info: Any) -> tuple[Obs, list[float]]:
        """The observation and the numbers of the info, or a `SlotError`."""
        if not isinstance(info, Mapping):
            raise SlotError(slot, f"the info is {_kind_of(info)}, not a dict")
        try:
            arrays = self._reader.read(obs)
        except ValueRefused as error:
            raise SlotError(slot, str(error)) from None
        return arrays, [_number(slot, f"info {name!r}", info.get(name, 0.0)) for name in self._info_names]

    def _store(self, slot: int, obs: Obs, numbers: list[float]) -> None:
        for stored, array in paired_arrays(self.rows.obs, obs):
            stored[slot] = array
        if numbers:
            self.rows.info[slot] = numbers

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The environment's own picture."""
        try:
            # A picture is a courtesy: an error here is raised to the caller and harms no slot.
            with _drawing_without_a_screen():
                picture = self._envs[slot].render()
        except Exception as error:
            raise RuntimeError(
                f"The environment cannot draw here ({error_text(error)}). If it draws with MuJoCo, then "
                "without a screen it needs EGL or OSMesa: install one and set MUJOCO_GL=egl or "
                "MUJOCO_GL=osmesa before the program starts."
            ) from error
        if not (
            isinstance(picture, np.ndarray)
            and picture.ndim == 3
            and picture.shape[2] == 3
            and picture.dtype == np.uint8
        ):
            raise RuntimeError(
                f"The environment draws no RGB picture: render() returned {_kind_of(picture)}; "
                "build it with render_mode='rgb_array'."
            )
        return picture

    def close(self) -> None:
        """Close every copy, even if closing another one fails."""
        while self._envs:
            close_env(self._envs.pop())


def built_env(make: MakeEnv) -> gymnasium.Env[Any, Any]:
    """One environment of this factory; a TypeError if it makes something else."""
    env = make()
    # A vector environment (what `gymnasium.make_vec` returns) has steps of another shape.
    if isinstance(env, gymnasium.vector.VectorEnv):
        close_env(env)
        raise TypeError(
            f"{type(env).__name__} is a vector environment: give a factory of the single environment, "
            "of which each slot gets one."
        )
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"{type(env).__module__}.{type(env).__name__} is no gymnasium.Env: "
            "wrap environments of other interfaces first (the package shimmy does it for gym and dm_control)."
        )
    return env


def close_env(env: Any) -> None:
    """Close an environment. An error of it is only logged: the environment is not needed any more."""
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 - third-party code, and others are still to be closed
        _log.warning("%s raised in close(): %s", type(env).__name__, error_text(error))


@contextmanager
def _drawing_without_a_screen() -> Iterator[None]:
    """Let Gymnasium's MuJoCo environments draw without a screen, which they expect by default."""
    # They read MUJOCO_GL. It is taken back afterwards, or workers that start later would load OpenGL.
    chosen = "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ or platform.system() != "Linux"
    if not chosen:
        os.environ["MUJOCO_GL"] = "egl"
    try:
        yield
    finally:
        if not chosen:
            del os.environ["MUJOCO_GL"]


def error_text(error: BaseException) -> str:
    """Type and text of an error, though the text may be long or even raise an error itself."""
    text = shortened(traceback.TracebackException.from_exception(error), 2000)
    return f"{type(error).__name__}: {text}"


# What an environment of the old gym returns differs in length, so this is the likeliest reason.
_OLD_API = "the interface of gym before 0.26, for which the package shimmy has a wrapper"


def _call(slot: int, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the environment; whatever it raises becomes a `SlotError` of this slot."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # third-party code: it may raise anything
        raise SlotError(slot, f"{name} raised {error_text(error)}") from error


def _end_of_episode(obs: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
    """Observation and info of the last row of an episode.

    An environment that resets itself has already begun the next episode: `obs` is then the start of that, and
    the end of this one is in the info.
    """
    final = next((info[key] for key in FINAL_OBS if info.get(key) is not None), None)
    if final is None:
        return obs, info
    final_info = info.get("final_info")
    return final, final_info if isinstance(final_info, Mapping) else info


def _kind_of(value: Any) -> str:
    """What was returned instead, in a few words."""
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "None" if value is None else f"a {type(value).__name__}"


def _number(slot: int, name: str, value: Any) -> float:
    """A finite number: Python's, numpy's, or an array without dimensions."""
    if isinstance(value, (float, int, np.floating, np.integer, np.bool_)) or (
        isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fiub"
    ):
        # An integer beyond all floats cannot be converted, and falls through to the error below.
        with suppress(OverflowError):
            number = float(value)
            if -np.inf < number < np.inf:
                return number
            raise SlotError(slot, f"the {name} is not finite: {number}")
    raise SlotError(slot, f"the {name} is {_kind_of(value)}, not a finite number")


def _flag(slot: int, name: str, value: Any) -> bool:
    """A flag: a bool of Python or numpy, or the whole number 0 or 1."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    shown = value if isinstance(value, (int, float)) else _kind_of(value)
    raise SlotError(slot, f"{name} is {shown}, not True or False")

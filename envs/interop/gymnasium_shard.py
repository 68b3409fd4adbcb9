"""Third-party Gymnasium environments as a shard: one copy per slot, stepped one after the other, and nothing
stored that was not checked.
"""

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

from envs.base import Obs, Shard, SlotError
from envs.interop.spaces import ActionWriter, ObsReader, ValueRefused

MakeEnv = Callable[[], Any]

FINAL_OBS = ("final_obs", "final_observation", "terminal_observation")
"""Where environments that reset themselves within the last step put its true observation (Gymnasium since
1.0, before, Stable-Baselines3).
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskSetter:
    """How an environment is told its task: nothing to tell, `set_task(task)`, `reset(options={"task":
    task})`, or the reset's seed.
    """

    by: str = "none"
    decode: Callable[[NDArray[np.float64]], Any] = np.copy
    """The task as the environment knows it."""


class GymnasiumShard(Shard):
    """Slots of any Gymnasium environment, an instance each.

    Whatever an environment returns is read strictly (envs/interop/spaces.py) before anything of it is stored,
    and copied then. Every episode is started by `reset(seed=...)`, also where a wrapper has begun one by
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
        try:
            for slot in range(num_slots):
                self._envs.append(built_env(make))
                self._same_spaces(slot)
        except BaseException:
            self.close()
            raise

    def _same_spaces(self, slot: int) -> None:
        env = self._envs[slot]
        for name, expected, found in (
            ("observation", self._reader.raw, env.observation_space),
            ("action", self._writer.raw, env.action_space),
        ):
            if found != expected:
                raise RuntimeError(
                    f"The environment has another {name} space each time it is built: {expected}, then {found}."
                )

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Start an episode of each of these copies."""
        for slot, task, seed in zip(slots.tolist(), tasks, seeds.tolist(), strict=True):
            arguments = self._prepare(slot, task, seed)
            result = _run(slot, "reset", self._envs[slot].reset, **arguments)
            if not (isinstance(result, tuple) and len(result) == 2):
                raise SlotError(slot, f"reset returned {_what(result)}, not (observation, info): {_OLD_API}")
            obs, info = result
            self._store(slot, *self._read(slot, obs, info))

    def _prepare(self, slot: int, task: NDArray[np.float64], seed: int) -> dict[str, Any]:
        """Tell the environment its task; the arguments of its reset. Seeds get 31 bits, as many as simulators
        written in C can take.
        """
        by = self._task.by
        arguments: dict[str, Any] = {"seed": int(task[0]) if by == "seed" else seed % 2**31}
        if by == "set_task":
            unwrapped: Any = self._envs[slot].unwrapped
            _run(slot, "set_task", unwrapped.set_task, self._task.decode(task))
        elif by == "options":
            arguments["options"] = {"task": self._task.decode(task)}
        return arguments

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Step these copies, one after the other."""
        rows = self.rows
        for slot, action in zip(slots.tolist(), self._writer.convert(actions, slots), strict=True):
            result = _run(slot, "step", self._envs[slot].step, action)
            if not (isinstance(result, tuple) and len(result) == 5):
                raise SlotError(
                    slot,
                    f"step returned {_what(result)}, not (observation, reward, terminated, truncated, info): {_OLD_API}",
                )
            obs, reward, terminated, truncated, info = result
            reward = _number(slot, "reward", reward)
            terminated, truncated = _flag(slot, "terminated", terminated), _flag(slot, "truncated", truncated)
            if (terminated or truncated) and isinstance(info, Mapping):
                obs, info = _of_the_last_row(obs, info)
            read = self._read(slot, obs, info)
            self._store(slot, *read)
            rows.reward[slot] = reward
            rows.terminated[slot] = terminated
            rows.truncated[slot] = truncated and not terminated

    def _read(self, slot: int, obs: Any, info: Any) -> tuple[Obs, list[float]]:
        """The observation and the numbers of the info, or a `SlotError`."""
        if not isinstance(info, Mapping):
            raise SlotError(slot, f"the info is {_what(info)}, not a dict")
        try:
            return self._reader.read(obs), [
                _number(slot, f"info {name!r}", info.get(name, 0.0)) for name in self._info_names
            ]
        except ValueRefused as error:
            raise SlotError(slot, str(error)) from None

    def _store(self, slot: int, obs: Obs, numbers: list[float]) -> None:
        rows = self.rows
        if isinstance(obs, dict):
            for key, part in obs.items():
                rows.obs[key][slot] = part  # pyright: ignore[reportArgumentType, reportCallIssue] - a Dict
        else:
            rows.obs[slot] = obs  # pyright: ignore[reportArgumentType, reportCallIssue] - a Box
        if numbers:
            rows.info[slot] = numbers

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The environment's own picture."""
        try:
            with _drawing_without_a_screen():
                picture = self._envs[slot].render()
        except Exception as error:
            raise RuntimeError(
                f"The environment cannot draw here ({error_text(error)}). If it draws with MuJoCo, then without a screen it needs EGL or OSMesa: "
                "install one and set MUJOCO_GL=egl or MUJOCO_GL=osmesa before the program starts."
            ) from error
        if not (
            isinstance(picture, np.ndarray)
            and picture.ndim == 3
            and picture.shape[2] == 3
            and picture.dtype == np.uint8
        ):
            raise RuntimeError(
                f"The environment draws no RGB picture: render() returned {_what(picture)}; build it with render_mode='rgb_array'."
            )
        return picture

    def close(self) -> None:
        """Close every copy, whatever the others do."""
        while self._envs:
            close_env(self._envs.pop())


def built_env(make: MakeEnv) -> gymnasium.Env[Any, Any]:
    """One environment of this factory; what is none is refused in a sentence."""
    env = make()
    if isinstance(env, gymnasium.vector.VectorEnv):
        close_env(env)
        raise TypeError(
            f"{type(env).__name__} is a vector environment: give a factory of the single environment, of which each slot gets one."
        )
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"{type(env).__module__}.{type(env).__name__} is no gymnasium.Env: "
            "wrap environments of other interfaces first (the package shimmy does it for gym and dm_control)."
        )
    return env


def close_env(env: Any) -> None:
    """Close an environment; what it raises is logged, since nobody needs it any more."""
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 - third-party code; the other environments are still to be closed
        _log.warning("%s raised in close(): %s", type(env).__name__, error_text(error))


@contextmanager
def _drawing_without_a_screen() -> Iterator[None]:
    """Gymnasium's MuJoCo environments ask MUJOCO_GL how to draw, and by default want a screen. Workers that
    start later do not inherit this: they would load OpenGL.
    """
    chosen = "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ or platform.system() != "Linux"
    if not chosen:
        os.environ["MUJOCO_GL"] = "egl"
    try:
        yield
    finally:
        if not chosen:
            del os.environ["MUJOCO_GL"]


def error_text(error: BaseException) -> str:
    """An error in words, though it may have none or too many."""
    text = str(traceback.TracebackException.from_exception(error))
    return f"{type(error).__name__}: {text if len(text) <= 2000 else f'{text[:2000]}...'}"


_OLD_API = "the interface of gym before 0.26, for which the package shimmy has a wrapper"


def _run(slot: int, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the environment; what it raises is this slot's error."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise SlotError(slot, f"{name} raised {error_text(error)}") from error


def _of_the_last_row(obs: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
    """Observation and info of the end of an episode, where the environment has already begun the next one and
    gives that one's.
    """
    final = next((info[key] for key in FINAL_OBS if info.get(key) is not None), None)
    if final is None:
        return obs, info
    return final, info["final_info"] if isinstance(info.get("final_info"), Mapping) else info


def _what(value: Any) -> str:
    """What was returned instead, in a few words."""
    return (
        f"{len(value)} values"
        if isinstance(value, tuple)
        else "None"
        if value is None
        else f"a {type(value).__name__}"
    )


def _number(slot: int, name: str, value: Any) -> float:
    """A finite number: Python's, numpy's, or an array without dimensions."""
    if isinstance(value, (float, int, np.floating, np.integer, np.bool_)) or (
        isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fiub"
    ):
        with suppress(OverflowError):  # an integer beyond all floats
            number = float(value)
            if -np.inf < number < np.inf:
                return number
            raise SlotError(slot, f"the {name} is not finite: {number}")
    raise SlotError(slot, f"the {name} is {_what(value)}, not a finite number")


def _flag(slot: int, name: str, value: Any) -> bool:
    """A flag: a bool of Python or numpy, or the whole number 0 or 1."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise SlotError(
        slot, f"{name} is {value if isinstance(value, (int, float)) else _what(value)}, not True or False"
    )

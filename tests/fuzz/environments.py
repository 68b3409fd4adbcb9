"""What environments return: values of other shapes and types, errors of every class, meddling with arrays.

Promised: the rows of an environment that does none of it, or a sentence. What happens once is gone after a
restart, since its trial is played again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.backends.base import BackendConfig, BackendError
from envs.meta.third_party.gymnasium_family import GymnasiumFamily
from envs.parallel_env_manager import ParallelEnvManager, WorkerError
from tests.fuzz.engine import BrokenPromise, Mutation, Target, check_sentence
from tests.fuzz.odd_objects import ERRORS, FLAGS, INFOS, NUMBERS, OBSERVATIONS, RESULTS
from tests.streams import trial_streams

SLOTS, TRIALS, EPISODES, LENGTH = 3, 4, 2, 5
# What the calls of all environments together come to, at least.
CALLS = TRIALS * EPISODES * (LENGTH + 1)
# A fault that comes always ends the run, in a sentence.
ALWAYS = 10**9


class Plan:
    """What goes wrong at which call of an environment, in whatever slot."""

    def __init__(self, mutations: Sequence[Mutation]) -> None:
        self.calls, self._due = 0, list[tuple[int, int, Mutation]]()
        for one in mutations:
            rng = one.rng
            first = int(rng.integers(1, CALLS))
            self._due.append((first, first + 1 if rng.random() < 0.9 else ALWAYS, one))

    def now(self) -> list[Mutation]:
        """Count a call; what goes wrong in it."""
        self.calls += 1
        return [one for first, end, one in self._due if first <= self.calls < end]


class OddEnv(gymnasium.Env[Any, Any]):
    """Adds up its actions, but for what the plan says."""

    def __init__(self, plan: Plan) -> None:
        self.observation_space = spaces.Box(-100.0, 100.0, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._plan, self._given = plan, list[NDArray[Any]]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._noise, self._time, self._sum = self.np_random.random(), 0, 0.0
        obs = self._observed()
        return self._changed((obs, {"one": 1.0}), self._plan.now())

    def step(self, action: Any) -> Any:
        self._time += 1
        self._sum += float(action[0])
        ended = self._time == LENGTH
        result = (self._observed(), self._sum, False, ended, {"one": float(self._time)})
        return self._changed(result, self._plan.now(), action)

    def _observed(self) -> NDArray[Any]:
        return np.array([self._noise, self._time, self._sum], np.float32)

    def _changed(self, result: tuple[Any, ...], mutations: list[Mutation], action: Any = None) -> Any:
        """The result with what goes wrong in this call."""
        changed: Any = list(result)
        for one in mutations:
            rng = one.rng
            if one.kind == "raise":
                raise ERRORS[rng.integers(len(ERRORS))]()
            if one.kind == "result":
                return RESULTS[rng.integers(len(RESULTS))](tuple(changed))
            if one.kind == "obs":
                changed[0] = OBSERVATIONS[rng.integers(len(OBSERVATIONS))](result[0])
            if one.kind == "info":
                changed[-1] = INFOS[rng.integers(len(INFOS))](result[-1])
            if one.kind == "number" and len(changed) == 5:
                changed[1] = NUMBERS[rng.integers(len(NUMBERS))](result[1])
            if one.kind == "flag" and len(changed) == 5:
                place = int(rng.integers(2, 4))
                changed[place] = FLAGS[rng.integers(len(FLAGS))](result[place])
            if one.kind == "meddle":
                self._meddle(action, rng)
        self._given.append(changed[0])
        return tuple(changed)

    def _meddle(self, action: Any, rng: np.random.Generator) -> None:
        """Write where others read: the action, observations of before, the streams of the process."""
        way = rng.integers(5)
        if way == 0 and action is not None and action.flags.writeable:
            action[...] = np.nan
        for array in self._given if way == 1 else ():
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                array[...] = -1.0
        if way == 2:
            np.random.seed(1)
        if way == 3:
            np.seterr(all="raise")
        if way == 4:
            self._given = list[NDArray[Any]]()
            warnings.warn("\x1b[2Jan odd warning", RuntimeWarning, stacklevel=1)


class Environments(Target):
    """An environment of three numbers on backends of this process."""

    name = "environments"
    num_cases = 200
    kinds = ("raise", "result", "obs", "obs", "info", "number", "flag", "meddle")
    most = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._wanted = self._rows(BackendConfig(name="serial"), Plan([]))

    def play(self, mutations: Sequence[Mutation]) -> None:
        """Play trials on it; the rows of before, or a sentence."""
        name = "thread" if sum(one.draw for one in mutations) % 4 == 0 else "serial"
        before = np.geterr()
        try:
            with warnings.catch_warnings(action="ignore"):
                found = self._rows(BackendConfig(name=name), Plan(mutations))
        except (WorkerError, BackendError) as error:
            check_sentence(error, may_quote=True)
            return
        finally:
            np.seterr(**before)
        if found != self._wanted:
            raise BrokenPromise(f"trials {[a != b for a, b in zip(found, self._wanted, strict=True)]} differ")

    def _rows(self, config: BackendConfig, plan: Plan) -> list[bytes]:
        # An error of an environment while the family looks at it, before there is a run, is not meant here.
        made = partial(OddEnv, Plan([]))
        family = GymnasiumFamily.from_factory(made, max_episode_steps=LENGTH, info_names=["one"])
        family._make = partial(OddEnv, plan)
        workers = {"serial": 1}.get(config.name, 2)
        with ParallelEnvManager(
            family, SLOTS, episodes_per_trial=EPISODES, num_workers=workers, backend=config
        ) as manager:
            return trial_streams(manager, TRIALS)

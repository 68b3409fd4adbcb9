"""CybORG, the original simulator of CAGE Challenge 2, as a Gymnasium environment of today's interface."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

PACKAGE = "CybORG"
# Inside the package.
SCENARIO = Path("Shared", "Scenarios", "Scenario2.yaml")
# The original's classes, in the order of the numbers that tasks have.
RED_AGENTS = ("B_lineAgent", "RedMeanderAgent", "SleepAgent")

OBS_SPACE = spaces.Box(0.0, 1.0, (52,), np.float32)
ACTION_SPACE = spaces.Discrete(145)


def what_is_missing(path: str) -> str | None:
    """Why the simulator cannot be imported from this folder, or ("") from Python's path; None: it can."""
    if path and not (Path(path) / PACKAGE / "__init__.py").is_file():
        return (
            f"env.path={path} holds no package {PACKAGE}: give the folder in which the folder {PACKAGE} "
            "with its __init__.py is, in the challenge's repository the first of that name."
        )
    if not path and importlib.util.find_spec(PACKAGE) is None:
        return (
            f"{PACKAGE} needs the original simulator, which no package index has: give env.path=FOLDER, "
            f"the folder that holds its package {PACKAGE}; env=CyberDefence plays the same game without it."
        )

    # It is found, and may itself need what is not there.
    searched = list(sys.path)
    try:
        _imported(path)
    except ModuleNotFoundError as error:
        module = str(error.name)
        package = module.partition(".")[0]
        if package == PACKAGE:
            return f"The package {PACKAGE} that was found lacks {module}: it is not that of version 2.1."
        return (
            f"{PACKAGE} is found, but it cannot be imported without the module {module}, which is not "
            f"installed: pip install the package that has it (most often pip install {package})."
        )
    finally:
        sys.path[:] = searched  # environments add the folder where they are played
    return None


def _imported(path: str) -> tuple[ModuleType, ModuleType, ModuleType]:
    """The simulator's package, its agents and its wrappers, from this folder or from Python's path."""
    if path and path not in sys.path:
        sys.path.insert(0, path)
    names = (PACKAGE, f"{PACKAGE}.Agents", f"{PACKAGE}.Agents.Wrappers")
    package, agents, wrappers = map(importlib.import_module, names)
    return package, agents, wrappers


class CybORGEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Blue's side of Scenario2 by the original ChallengeWrapper; `options={"task": n}` says who attacks.

    The simulator draws from Python's global stream. Each environment has its own part of it, so that its
    episodes are a function of their seeds, whatever else draws in this process.
    """

    observation_space = OBS_SPACE
    action_space = ACTION_SPACE

    def __init__(self, path: str = "") -> None:
        self._path = path
        # One simulator for each attacker, built when it is first played: that takes longer than a reset.
        self._simulators: dict[int, Any] = {}
        self._attacker = 0
        self._stream = random.Random(0).getstate()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._attacker = int((options or {}).get("task", self._attacker))
        # Built before the stream is seeded, or the first episode of a simulator would have other draws.
        if self._attacker not in self._simulators:
            self._simulators[self._attacker] = self._simulator()
        if seed is not None:
            self._stream = random.Random(seed).getstate()
        with self._own_stream():
            obs = self._simulators[self._attacker].reset()
        return np.asarray(obs, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        with self._own_stream():
            obs, reward, done, _ = self._simulators[self._attacker].step(int(action))
        return np.asarray(obs, np.float32), float(reward), bool(done), False, {}

    def _simulator(self) -> Any:
        """The wrapped simulator with this attacker."""
        package, agents, wrappers = _imported(self._path)
        scenario = Path(str(package.__file__)).parent / SCENARIO
        red = getattr(agents, RED_AGENTS[self._attacker])
        with self._own_stream():
            return wrappers.ChallengeWrapper(
                env=package.CybORG(str(scenario), "sim", agents={"Red": red}), agent_name="Blue"
            )

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Inside, Python's global stream is this environment's."""
        others = random.getstate()
        random.setstate(self._stream)
        try:
            yield
        finally:
            self._stream = random.getstate()
            random.setstate(others)

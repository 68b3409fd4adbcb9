"""as_sb3_vec_env: the slots of a manager as a VecEnv of Stable-Baselines3, of which an episode is a trial."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import Obs, map_obs
from envs.interop.trial_slots import TrialSlots
from envs.parallel_env_manager import ParallelEnvManager
from utils.options import OptionError


def as_sb3_vec_env(manager: ParallelEnvManager, *, seed: int | None = None) -> Any:
    """A VecEnv over this manager: the data of `DummyVecEnv` over `make_env`, from whatever backend steps it.

    Slot i is seeded with seed + i, as `vec_env.seed(seed)` does. A slot whose trial ends starts the next one
    in the same step; `terminal_observation` and `TimeLimit.truncated` are in its info, as SB3 expects them.
    Closing it closes the manager.
    """
    # Imported here, since nothing under envs/ may load torch in a worker.
    try:
        library = importlib.import_module("stable_baselines3.common.vec_env")
    except ModuleNotFoundError:
        raise OptionError(
            "as_sb3_vec_env needs Stable-Baselines3: pip install -c requirements.txt .[peers]"
        ) from None

    # VecEnv is an abstract class; what it asks for is done by `_Slots`, which needs nothing of SB3.
    class RetrialVecEnv(_Slots, library.VecEnv):
        def __init__(self) -> None:
            _Slots.__init__(self, manager)
            library.VecEnv.__init__(
                self, manager.num_envs, manager.single_observation_space, manager.single_action_space
            )

    vec_env = RetrialVecEnv()
    if seed is not None:
        vec_env.seed(seed)
    return vec_env


class _Slots:
    """The methods of a VecEnv, over the slots of a manager."""

    render_mode = "rgb_array"
    # Set by VecEnv: what `seed` and `set_options` said, for the next reset.
    _seeds: list[int | None]
    _options: list[dict[str, Any]]
    reset_infos: list[dict[str, Any]]

    def __init__(self, manager: ParallelEnvManager) -> None:
        self._manager, self._slots = manager, TrialSlots(manager)
        self._actions: NDArray[Any] = np.empty(0)

    def reset(self) -> Obs:
        """Start a trial in every slot, with the seeds and options (`{"task": ...}`) that were set before."""
        tasks: dict[int, Any] = {}
        for slot, (seed, options) in enumerate(zip(self._seeds, self._options, strict=True)):
            if set(options) - {"task"}:
                raise ValueError(f"set_options knows only 'task', not {sorted(options)}.")
            if seed is not None:
                self._slots.seed(slot, seed)
            if "task" in options:
                tasks[slot] = options["task"]
        self._slots.start(range(self._slots.num_envs), tasks)
        # Seeds and options are for one reset.
        self._seeds = [None] * self._slots.num_envs
        self._options = [{} for _ in range(self._slots.num_envs)]
        self.reset_infos = self._infos()
        return self._slots.observations()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions; `step_wait` posts them to all workers at once, and waits."""
        self._actions = actions

    def step_wait(self) -> tuple[Obs, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations, rewards, dones and infos of one step, with new trials where one has ended."""
        rows = self._slots.step(self._actions)
        terminated, truncated = self._slots.ends()
        dones, rewards = terminated | truncated, np.where(rows.valid, rows.reward, 0.0).astype(np.float32)
        observations, infos = self._slots.observations(), self._infos()
        for slot, info in enumerate(infos):
            info["TimeLimit.truncated"] = bool(truncated[slot])
        # The next trial begins in the same step, and the last observation goes into the info.
        over = np.flatnonzero(dones).tolist()
        if over:
            for slot in over:
                infos[slot]["terminal_observation"] = _of(observations, slot)
            self._slots.start(over)
            for slot in over:
                self.reset_infos[slot] = self._manager.info_of(slot)
            observations = self._slots.observations()
        return observations, rewards, dones, infos

    def close(self) -> None:
        """End the workers and free what they share."""
        self._manager.close()

    def get_images(self) -> Sequence[NDArray[np.uint8]]:
        """An RGB picture of every slot."""
        return [self._manager.render(slot) for slot in range(self._slots.num_envs)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of this face, once for each slot: the slots have no objects of their own."""
        return [getattr(self, attr_name) for _ in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not to be had: the environments live in workers."""
        raise AttributeError(
            f"{attr_name!r} cannot be set in slots of a manager: give options to make_parallel_env."
        )

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Not to be had: the environments live in workers."""
        raise AttributeError(f"{method_name!r} cannot be called in slots of a manager; see manager.remotes.")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """No slot is wrapped."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: Any) -> Sequence[int]:
        if indices is None:
            return range(self._slots.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)

    def _infos(self) -> list[dict[str, Any]]:
        return [self._manager.info_of(slot) for slot in range(self._slots.num_envs)]


def _of(obs: Obs, slot: int) -> Any:
    """The observation of one slot."""
    return map_obs(lambda part: part[slot].copy(), obs)

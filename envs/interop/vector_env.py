"""RetrialVectorEnv: many slots as a Gymnasium vector environment, of which an episode is a whole trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.interop.trial_slots import TrialSlots
from envs.meta.make_env import make_parallel_env, with_horizon
from envs.parallel_env_manager import ParallelEnvManager

_OPTIONS = {"tasks", "mask", "reset_mask"}


class RetrialVectorEnv(gymnasium.vector.VectorEnv[Any, Any, NDArray[Any]]):
    """N slots of a manager, with Gymnasium's `NEXT_STEP` autoreset: the data of a `SyncVectorEnv` over
    `make_env`, bit for bit, from whatever backend steps the manager.

    `reset(seed=s)` seeds slot i with s + i, and a list has a seed (or None) for every slot. `options` may
    have `mask` (Gymnasium calls it `reset_mask`): which slots are reset, and `tasks`: one for each slot that
    is reset. The step after a trial's end starts the next trial of that slot, and ignores its action. A trial
    that is given up after a fault is truncated, and `infos["dropped"]` is true.
    """

    def __init__(
        self, manager: ParallelEnvManager, *, seed: int | None = None, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r} must be None or 'rgb_array'.")
        self._slots, self._manager, self.render_mode = TrialSlots(manager), manager, render_mode
        self.num_envs = manager.num_envs
        self.single_observation_space = manager.single_observation_space
        self.single_action_space = manager.single_action_space
        self.observation_space, self.action_space = manager.observation_space, manager.action_space
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 20,
            "autoreset_mode": AutoresetMode.NEXT_STEP,
        }
        if seed is not None:
            self._seed(seed, np.ones(self.num_envs, np.bool_))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a trial in every slot, or in those of the mask."""
        # Everything is checked before a generator or a slot changes.
        chosen = self._mask(options or {})
        slots = np.flatnonzero(chosen).tolist()
        tasks = (options or {}).get("tasks")
        if tasks is not None and len(tasks) != len(slots):
            raise ValueError(f"options['tasks'] needs one task for each of {len(slots)} slots: {len(tasks)}.")
        if seed is not None:
            self._seed(seed, chosen)
        self._slots.start(slots, None if tasks is None else dict(zip(slots, tasks, strict=True)))
        return self._slots.observations(), self._infos(chosen)

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of every slot; where a trial has ended, the start of the next."""
        rows = self._slots.step(np.asarray(actions))
        terminated, truncated = self._slots.ends()
        # A slot whose trial was given up has no row, and its old reward was paid already.
        rewards = np.where(rows.valid, rows.reward, 0.0)
        return self._slots.observations(), rewards, terminated, truncated, self._infos()

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """An RGB picture of every slot, when made with `render_mode="rgb_array"`."""
        if self.render_mode is None:
            return None
        return tuple(self._manager.render(slot) for slot in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers and free what they share."""
        self._manager.close()

    def _seed(self, seed: int | Sequence[int | None], chosen: NDArray[np.bool_]) -> None:
        if isinstance(seed, int):
            seed = range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"There are {self.num_envs} slots and {len(seed)} seeds: give one for each.")
        for slot, number in enumerate(seed):
            if number is not None and chosen[slot]:
                self._slots.seed(slot, number)

    def _mask(self, options: Mapping[str, Any]) -> NDArray[np.bool_]:
        """[N] the slots that a reset is about: all, unless there is a mask."""
        unknown = set(options) - _OPTIONS
        if unknown:
            raise ValueError(f"reset(options=...) knows 'tasks' and 'mask', not {sorted(unknown)}.")
        given = options.get("mask", options.get("reset_mask"))
        mask = np.ones(self.num_envs, np.bool_) if given is None else np.asarray(given)
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"A mask has a truth value for each of {self.num_envs} slots, one of them True.")
        return mask

    def _infos(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, Any]:
        """What is known of each slot's row, with Gymnasium's masks `_name` of the slots that have it."""
        infos: dict[str, Any] = {}
        for name, values in self._manager.infos().items():
            here = np.ones(self.num_envs, np.bool_) if chosen is None else chosen.copy()
            infos[name], infos[f"_{name}"] = np.zeros_like(values), here
            infos[name][here] = values[here]
        return infos


def make_vector_env(
    env_id: str,
    num_envs: int = 1,
    episodes_per_task: int | None = None,
    seed: int | None = None,
    oracle: bool = False,
    *,
    num_workers: int = 1,
    horizon: int | None = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> RetrialVectorEnv:
    """What `gymnasium.make_vec("Retrial/...", vectorization_mode="vector_entry_point")` makes.

    The arguments are those of `make_env`; `num_workers` and kwargs of the backend as in `make_parallel_env`.
    """
    options = with_horizon(kwargs, horizon)
    manager = make_parallel_env(
        env_id, episodes_per_task, num_workers, oracle=oracle, num_envs=num_envs, **options
    )
    return RetrialVectorEnv(manager, seed=seed, render_mode=render_mode)

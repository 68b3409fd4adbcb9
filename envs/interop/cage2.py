"""The names under which published code for CAGE Challenge 2 steps many environments, over CyberDefence."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.backends.base import BackendConfig
from envs.base import Rows
from envs.meta.cyber import scenario as sc
from envs.meta.cyber.cyber_defence import CyberDefenceConfig
from envs.meta.cyber.network import MALWARE, PRIVILEGED, REMOVABLE, STUCK
from envs.meta.cyber.scripts import INFO_NAMES, Truth
from envs.meta.make_env import make_parallel_env
from utils.machine import available_cores
from utils.options import OptionError, nearest


class B_lineAgent:  # noqa: N801 - the published name
    """Stands for the attacker that walks straight to the server."""


class RedMeanderAgent:
    """Stands for the attacker that explores the whole network."""


class SleepAgent:
    """Stands for the attacker that does nothing."""


# Any class of these names will do, such as those of CybORG itself.
_ATTACKERS = {"B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep"}
_LEVELS = ("None", "User", "Privileged")
# By set of decoys: their names.
_DECOYS = [[name for bit, name in enumerate(sc.DECOYS) if placed >> bit & 1] for placed in range(256)]

# The arguments of the classes below, and what they decide by themselves or could not keep: here all
# environments step and end together.
_ARGUMENTS = ("n_envs", "red_agent_type", "max_steps", "num_workers", "seed")
_DECIDED = {
    *("family", "red", "max_episode_steps", "max_rollouts_per_task", "num_train_tasks", "num_eval_tasks"),
    *("oracle", "name", "min_ready", "on_fault"),
}
_MEANT = {
    "red": "red_agent_type",
    "num_envs": "n_envs",
    "horizon": "max_steps",
    "max_episode_steps": "max_steps",
}
_OPTIONS = {item.name for kind in (CyberDefenceConfig, BackendConfig) for item in fields(kind)} - _DECIDED


def _attacker(red: Any) -> str:
    """The attacker that a class of a known name stands for."""
    if not isinstance(red, type):
        raise OptionError(f"red_agent_type is a class, such as B_lineAgent; it is not {red!r}.")
    if red.__name__ not in _ATTACKERS:
        raise OptionError(f"There is no red agent {red.__name__!r}.{nearest(red.__name__, _ATTACKERS)}")
    return _ATTACKERS[red.__name__]


def _is_whole(value: Any, least: int) -> bool:
    # True is a whole number to Python.
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least


def _choices(actions: ArrayLike) -> NDArray[Any]:
    """Actions, where floats that are whole numbers will do; all else is checked by the manager."""
    chosen = np.asarray(actions)
    if chosen.dtype.kind != "f":
        return chosen
    wrong = ~((chosen >= 0) & (chosen < sc.NUM_ACTIONS) & (chosen == np.floor(chosen)))
    if wrong.any():
        raise ValueError(f"An action is a whole number from 0 to 144, not {chosen[wrong][0]}.")
    return chosen.astype(np.int64)


def true_states(rows: Rows) -> list[dict[str, dict[str, Any]]]:
    """The true state of every slot, which CyberDefence writes into the infos of its rows."""
    truth = Truth.of(rows.info, 0)
    states: list[dict[str, dict[str, Any]]] = [{} for _ in range(len(rows.info))]
    for host, name in enumerate(sc.HOSTS):
        user = truth.has(REMOVABLE, host) | truth.has(STUCK, host)
        levels = np.where(truth.has(PRIVILEGED, host), 2, user).tolist()
        files, placed = truth.has(MALWARE, host).tolist(), truth.decoys[:, host].tolist()
        for state, level, file, decoys in zip(states, levels, files, placed, strict=True):
            # A list of its own for each host, which the caller may keep and change.
            state[name] = {"session": _LEVELS[level], "malware": file, "decoys": list(_DECOYS[decoys])}
    return states


class VectorizedCAGE2Envs:
    """Environments in this process, stepped together; the base of the other two, which have workers.

    `step` returns observations, rewards, dones and infos. All episodes end together, after `max_steps`. That
    step returns the rewards and infos of the episodes that ended, but the observations of the next ones,
    which have new seeds; and `get_true_states` tells of the next ones from then on.
    """

    # The backend that steps the environments.
    _backend = "serial"

    def __init__(
        self,
        n_envs: int = 200,
        red_agent_type: type = B_lineAgent,
        max_steps: int = 100,
        *,
        num_workers: int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self._check(options, n_envs=n_envs, num_workers=num_workers, seed=seed)
        self.red_agent_type = red_agent_type
        workers = 1 if self._backend == "serial" else num_workers or min(available_cores(), n_envs)
        self.n_envs, self.max_steps = n_envs, max_steps
        self._manager = make_parallel_env(
            "CyberDefence",
            1,
            workers,
            seed,
            num_envs=n_envs,
            name=self._backend,
            red=_attacker(red_agent_type),
            max_episode_steps=max_steps,
            **options,
        )
        self.observation_space = self._manager.single_observation_space
        self.action_space = self._manager.single_action_space
        self.observation_shape = (sc.NUM_HOSTS * 4,)
        self._rows: Rows | None = None
        self._closed = False

    def _check(self, options: dict[str, Any], **numbers: Any) -> None:
        """Refuse an option that there is not, and a number that is none."""
        kind = type(self).__name__
        for name in options:
            if name not in _OPTIONS:
                hint = nearest(_MEANT.get(name, name), [*_ARGUMENTS, *_OPTIONS])
                raise OptionError(f"{kind} has no option {name!r}.{hint}")
        for name, number in numbers.items():
            least = 0 if name == "seed" else 1
            if number is None and name != "n_envs":
                continue
            if not _is_whole(number, least):
                raise OptionError(f"{kind}: {name}={number!r} must be a whole number, at least {least}.")

    def reset(self) -> NDArray[np.float32]:
        """[n_envs, 52] the first observations of new episodes."""
        self._rows = self._manager.reset()
        return self._observations(self._rows)

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], list[dict[str, Any]]]:
        """One step of all environments: observations, rewards, dones, infos."""
        rows = self._rows = self._manager.step(_choices(actions))
        # Rows are live buffers, which the reset below overwrites.
        rewards, dones = rows.reward.copy(), rows.trial_end.copy()
        infos: list[dict[str, Any]] = [
            dict(zip(INFO_NAMES[:3], values, strict=True)) for values in rows.info[:, :3].tolist()
        ]
        observations = self.reset() if dones.all() else self._observations(rows)
        return observations, rewards, dones, infos

    def get_true_states(self) -> list[dict[str, dict[str, Any]]]:
        """For each environment and host: red's session, whether a malware file is there, the decoys.

        After a step that ended the episodes it is the state of the next ones, as its observations are.
        """
        if self._closed:
            raise OptionError("There is no true state after close(): the environments are gone.")
        if self._rows is None:
            raise OptionError("There is no true state before the first reset.")
        return true_states(self._rows)

    def close(self) -> None:
        """End the workers and free what they share."""
        self._closed = True
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _observations(self, rows: Rows) -> NDArray[np.float32]:
        assert isinstance(rows.obs, np.ndarray)
        return rows.obs.copy()


class ParallelEnvSharedMemory(VectorizedCAGE2Envs):
    """Environments in worker processes, one per core unless `num_workers` says otherwise.

    Their rows are in shared memory, and each worker steps its environments together.
    """

    _backend = "process"


class ParallelEnv(VectorizedCAGE2Envs):
    """Environments in worker processes whose rows come through pipes, one process per core by default."""

    _backend = "pipe"

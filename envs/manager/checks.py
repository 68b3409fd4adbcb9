"""What may be asked of a manager: one clear error for each thing that may not, before anything has changed."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, OnFault
from envs.base import ActionSpace, EnvSpec
from envs.manager.recovery import WorkerError
from envs.manager.stepping import Start
from utils.options import nearest


class TrialDroppedError(WorkerError):
    """The trial of this slot was given up after a fault, so there is no row to return. The manager goes on,
    unlike after other WorkerErrors.
    """

    def __init__(self, slot: int) -> None:
        super().__init__(
            f"The trial of slot {slot} was given up after a fault, so there is no row of it: a reset starts another."
        )


def backend_name(chosen: str, num_workers: int) -> str:
    """The backend of that name; auto is worker processes, or with a single worker this process."""
    if chosen not in ("auto", *BACKENDS):
        raise ValueError(f"backend={chosen} is not known.{nearest(chosen, ('auto', *BACKENDS))}")
    return chosen if chosen != "auto" else "process" if num_workers > 1 else "serial"


def check_settings(
    config: BackendConfig, name: str, num_envs: int, *, num_workers: int, num_groups: int, deterministic: bool
) -> None:
    """Refuse what cannot be, before anything is started."""
    if not 1 <= num_workers <= num_envs:
        raise ValueError(f"num_workers={num_workers} must be between 1 and the number of slots, {num_envs}.")
    if not 1 <= num_groups <= num_envs // num_workers:
        raise ValueError(
            f"num_groups={num_groups} needs a slot of every group in each of {num_workers} workers: {num_groups * num_workers} slots, not {num_envs}."
        )
    if config.max_worker_memory is not None and name in BACKENDS and not BACKENDS[name].has_processes:
        raise ValueError(
            f"max_worker_memory={config.max_worker_memory} is for worker processes, and backend={name} has none: leave it out."
        )
    if config.min_ready is not None:
        if deterministic:
            raise ValueError(
                "min_ready takes slots as they come, so the data depends on timing: deterministic=true refuses it."
            )
        if name in BACKENDS and not BACKENDS[name].can_lag:
            able = [other for other, kind in BACKENDS.items() if kind.can_lag]
            raise ValueError(f"min_ready has no meaning on backend={name}; it works on {', '.join(able)}.")
        if num_groups > 1:
            raise ValueError(
                f"min_ready={config.min_ready} and num_groups={num_groups} exclude each other: both decide who waits for whom."
            )
        if config.min_ready > num_envs:
            raise ValueError(f"min_ready={config.min_ready} can never be reached with {num_envs} slots.")
    if deterministic and config.on_fault is OnFault.drop:
        raise ValueError(
            "on_fault=drop gives trials up, so the data depends on faults: deterministic=true refuses it."
        )


# -- slots, tasks and seeds ----------------------------------------------------------------------------------


def whole(given: Any, what: str) -> int:
    """A whole number, of Python's or numpy's: a fraction would be cut, and a truth value comes from a mask
    (of which np.flatnonzero makes slots).
    """
    if not isinstance(given, (bool, np.bool_)):
        with suppress(TypeError):
            return operator.index(given)
    raise ValueError(f"{what} is a whole number, not {given!r}.")


def checked_slot(slot: Any, num_envs: int) -> int:
    """The same slot, if there is one of that number."""
    number = whole(slot, "A slot")
    if not 0 <= number < num_envs:
        raise ValueError(f"There is no slot {number}; there are 0 to {num_envs - 1}.")
    return number


def chosen_slots(slots: Sequence[int] | None, num_envs: int) -> NDArray[np.int64]:
    """These slots (default: all), in the order given."""
    if slots is None:
        return np.arange(num_envs)
    chosen = [whole(slot, "A slot") for slot in listed(slots, "slots")]
    if len(set(chosen)) < len(chosen) or any(not 0 <= slot < num_envs for slot in chosen):
        raise ValueError(f"slots={chosen} must be different numbers from 0 to {num_envs - 1}.")
    return np.array(chosen, np.int64)


def listed(given: Any, name: str, expected: int | None = None) -> list[Any]:
    """What was given one by one, if it is as many as expected."""
    try:
        found = list(given)
    except TypeError:
        raise ValueError(f"{name}={given!r} must be a sequence, one for each slot of the reset.") from None
    if expected is not None and len(found) != expected:
        raise ValueError(f"reset got {len(found)} {name} for {expected} slots.")
    return found


def checked_task(task: Any, spec: EnvSpec) -> NDArray[np.float64]:
    """The same task as a vector, if the family has such tasks."""
    vector = _numbers(task, f"A task of {spec.name}")
    if vector.shape != (spec.task_dim,):
        raise ValueError(
            f"A task of {spec.name} is a vector of {spec.task_dim} numbers; got shape {vector.shape}."
        )
    if not np.isfinite(vector).all():
        raise ValueError(f"A trial needs a finite task; got {vector.tolist()}.")
    return vector.astype(np.float64)  # a copy: the caller's own may change


def checked_seed(seed: Any) -> int:
    """The same seed, if a trial can have it."""
    number = whole(seed, "The seed of a trial")
    if not 0 <= number < 2**64:
        raise ValueError(f"A trial needs a seed from 0 to 2**64 - 1; got {number}.")
    return number


def checked_starts(starts: Mapping[int, Start], spec: EnvSpec, num_envs: int) -> dict[int, Start]:
    """The same starts, if trials can begin like that."""
    slots = chosen_slots(list(starts), num_envs).tolist()
    for start in starts.values():
        if not isinstance(start, Start):
            raise ValueError(f"A trial begins with a Start(task, seed), not with {start!r}.")
    return {
        slot: Start(checked_task(start.task, spec), checked_seed(start.seed))
        for slot, start in zip(slots, starts.values(), strict=True)
    }


# -- actions and commands ------------------------------------------------------------------------------------


def _numbers(given: Any, what: str) -> NDArray[Any]:
    """An array of real numbers."""
    try:
        found = np.asarray(given)
    except ValueError:
        raise ValueError(f"{what} is made of real numbers, not of rows of different lengths.") from None
    if found.dtype.kind not in "iuf":
        raise ValueError(
            f"{what} is made of real numbers, not of {found.dtype if found.ndim else repr(given)}."
        )
    return found


def checked_actions(actions: Any, space: ActionSpace, num_envs: int | None = None) -> NDArray[Any]:
    """The same actions, one per slot (or that of one slot alone), if the space has them."""
    given = _numbers(actions, "An action")
    wanted = (*(() if num_envs is None else (num_envs,)), *(space.shape or ()))
    if given.shape != wanted:
        who = (
            "An action has shape {}; got {}."
            if num_envs is None
            else "step needs actions of shape {}, one per slot; it got {}."
        )
        raise ValueError(who.format(wanted, given.shape))
    if isinstance(space, spaces.Box):
        fine = (given >= space.low) & (given <= space.high)
    elif given.dtype.kind != "f":
        low = space.start if isinstance(space, spaces.Discrete) else 0
        fine = (given >= low) & (
            given < low + (space.n if isinstance(space, spaces.Discrete) else space.nvec)
        )
    else:
        raise ValueError(f"Actions of {space} are whole numbers, not {given.dtype}.")
    if not fine.all():
        place = np.argwhere(~fine)[0]
        where = "" if num_envs is None else f" of slot {place[0]}"
        raise ValueError(
            f"The action{where} is not in {space}: {(given if num_envs is None else given[place[0]]).tolist()}."
        )
    return given


def checked_command(command: Any) -> tuple[str, Any]:
    """The name and the payload of what was sent to a slot; that of a reset is a dict."""
    if not isinstance(command, (tuple, list)) or len(command) != 2:
        raise ValueError(f'A command is a pair, ("reset", {{...}}) or ("step", action), not {command!r}.')
    name, payload = command
    if name not in ("reset", "step"):
        raise ValueError(f"A slot knows 'reset' and 'step', not {name!r}.")
    if name == "reset":
        payload = {} if payload is None else payload
        if not isinstance(payload, Mapping):
            raise ValueError(f"A reset takes a dict with 'task' and 'seed', both optional, not {payload!r}.")
        unknown = sorted(str(key) for key in set(payload) - {"task", "seed"})
        if unknown:
            raise ValueError(f"A reset takes 'task' and 'seed', not {unknown}.")
    return name, payload

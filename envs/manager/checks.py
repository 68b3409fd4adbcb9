"""What may be asked of a manager: one clear error for each wrong call, before anything has changed."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig, OnFault
from envs.base import ActionSpace, EnvSpec
from envs.manager.recovery import WorkerError
from envs.manager.stepping import Start
from utils.options import nearest


class TrialDroppedError(WorkerError):
    """The trial of this slot was given up after a fault, so there is no row to return.

    The manager goes on, unlike after other WorkerErrors.
    """

    def __init__(self, slot: int) -> None:
        super().__init__(
            f"The trial of slot {slot} was given up after a fault, so there is no row of it: "
            "a reset starts another."
        )


# -- the settings of a manager -------------------------------------------------------------------------------


def backend_name(chosen: str, num_workers: int) -> str:
    """The backend of that name; auto is worker processes, or with a single worker this process."""
    if chosen not in ("auto", *BACKENDS):
        raise ValueError(f"backend={chosen} is not known.{nearest(chosen, ('auto', *BACKENDS))}")
    if chosen != "auto":
        return chosen
    # This is a guess; a run measures instead (envs/backends/auto.py) and passes the name that it found.
    return "process" if num_workers > 1 else "serial"


def check_settings(
    config: BackendConfig, name: str, num_envs: int, *, num_workers: int, num_groups: int, deterministic: bool
) -> None:
    """Refuse settings that contradict each other, before anything is started."""
    # Every worker needs a slot, and a slot of each group: a group without a slot could not be posted.
    if not 1 <= num_workers <= num_envs:
        raise ValueError(f"num_workers={num_workers} must be between 1 and the number of slots, {num_envs}.")
    if not 1 <= num_groups <= num_envs // num_workers:
        raise ValueError(
            f"num_groups={num_groups} needs a slot of every group in each of {num_workers} workers: "
            f"{num_groups * num_workers} slots, not {num_envs}."
        )
    # `name` may still be "auto" here: then the backend is measured later, and its own limits are not known.
    if config.max_worker_memory is not None and name in BACKENDS and not BACKENDS[name].has_processes:
        raise ValueError(
            f"max_worker_memory={config.max_worker_memory} is for worker processes, and backend={name} "
            "has none: leave it out."
        )
    if config.min_ready is not None:
        _check_min_ready(config.min_ready, name, num_envs, num_groups=num_groups, deterministic=deterministic)
    # A trial that is given up changes which trials the data consists of.
    if deterministic and config.on_fault is OnFault.drop:
        raise ValueError(
            "on_fault=drop gives trials up, so the data depends on faults: deterministic=true refuses it."
        )


def _check_min_ready(
    min_ready: int, name: str, num_envs: int, *, num_groups: int, deterministic: bool
) -> None:
    """Refuse to go on with the first `min_ready` slots where that has no meaning."""
    if deterministic:
        raise ValueError(
            "min_ready takes slots as they come, so the data depends on timing: "
            "deterministic=true refuses it."
        )
    if name in BACKENDS and not BACKENDS[name].can_lag:
        able = ", ".join(other for other, kind in BACKENDS.items() if kind.can_lag)
        raise ValueError(f"min_ready has no meaning on backend={name}; it works on {able}.")
    if num_groups > 1:
        raise ValueError(
            f"min_ready={min_ready} and num_groups={num_groups} exclude each other: "
            "both decide which slots are waited for."
        )
    if min_ready > num_envs:
        raise ValueError(f"min_ready={min_ready} can never be reached with {num_envs} slots.")


# -- slots, tasks and seeds ----------------------------------------------------------------------------------


def whole_number(given: Any, what: str) -> int:
    """A whole number, of Python's or numpy's, or a ValueError that calls it `what`."""
    # A fraction would be cut, and a truth value comes from a mask (np.flatnonzero makes slots of one).
    if not isinstance(given, (bool, np.bool_)):
        with suppress(TypeError):
            return operator.index(given)
    raise ValueError(f"{what} is a whole number, not {given!r}.")


def as_list(given: Any, name: str, expected: int | None = None) -> list[Any]:
    """A sequence as a list, if it has as many items as expected."""
    # Any iterable will do; a single number is the usual mistake.
    try:
        items = list(given)
    except TypeError:
        raise ValueError(f"{name}={given!r} must be a sequence, one for each slot of the reset.") from None
    if expected is not None and len(items) != expected:
        raise ValueError(f"reset got {len(items)} {name} for {expected} slots.")
    return items


def checked_slot(slot: Any, num_envs: int) -> int:
    """A slot that the manager has."""
    number = whole_number(slot, "A slot")
    if not 0 <= number < num_envs:
        raise ValueError(f"There is no slot {number}; there are 0 to {num_envs - 1}.")
    return number


def chosen_slots(slots: Sequence[int] | None, num_envs: int) -> NDArray[np.int64]:
    """These slots (default: all), in the order given."""
    # The order counts: tasks and seeds of a reset belong to the slots in the order in which they were given.
    if slots is None:
        return np.arange(num_envs)
    chosen = [whole_number(slot, "A slot") for slot in as_list(slots, "slots")]
    if not chosen:
        raise ValueError("reset got no slots: name at least one in slots=, or leave it out for all of them.")
    if len(set(chosen)) < len(chosen) or any(not 0 <= slot < num_envs for slot in chosen):
        raise ValueError(f"slots={chosen} must be different numbers from 0 to {num_envs - 1}.")
    return np.array(chosen, np.int64)


def checked_task(task: Any, spec: EnvSpec) -> NDArray[np.float64]:
    """A task that the family can have, as a vector of its own."""
    vector = _numbers(task, f"A task of {spec.name}")
    if vector.shape != (spec.task_dim,):
        raise ValueError(
            f"A task of {spec.name} is a vector of {spec.task_dim} numbers; got shape {vector.shape}."
        )
    if not np.isfinite(vector).all():
        raise ValueError(f"A trial needs a finite task; got {vector.tolist()}.")
    return vector.astype(np.float64)  # a copy: the caller may change its own


def checked_tasks(tasks: ArrayLike | None, spec: EnvSpec, count: int) -> list[NDArray[np.float64]]:
    """The tasks of a reset, one for each of its `count` slots; none if they are to be drawn."""
    return [] if tasks is None else [checked_task(task, spec) for task in as_list(tasks, "tasks", count)]


def checked_seed(seed: Any) -> int:
    """A seed that a trial can have."""
    # 64 bits are what `Commands.seed` holds.
    number = whole_number(seed, "The seed of a trial")
    if not 0 <= number < 2**64:
        raise ValueError(f"A trial needs a seed from 0 to 2**64 - 1; got {number}.")
    return number


def checked_seeds(seeds: Sequence[int] | None, count: int) -> list[int]:
    """The seeds of a reset, one for each of its `count` slots; none if they are to be drawn."""
    return [] if seeds is None else [checked_seed(seed) for seed in as_list(seeds, "seeds", count)]


def checked_starts(starts: Mapping[int, Start], spec: EnvSpec, num_envs: int) -> dict[int, Start]:
    """Starts with which trials can begin, by slot."""
    # New objects: a caller may change its own tasks before they are posted.
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
    """An array of real numbers, or a ValueError that calls it `what`."""
    # numpy refuses ragged rows by itself, in words that name neither task nor action.
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(f"{what} is made of real numbers, not of rows of different lengths.") from None
    # Truth values, complex numbers, text and objects are not converted: they are mistakes.
    if array.dtype.kind not in "iuf":
        kind = str(array.dtype) if array.ndim else repr(given)
        raise ValueError(f"{what} is made of real numbers, not of {kind}.")
    return array


def checked_actions(actions: Any, space: ActionSpace, num_envs: int) -> NDArray[Any]:
    """Actions that the space has, one for each slot."""
    array = _numbers(actions, "An action")
    # No broadcasting: actions of another shape belong to other slots, or to another space.
    wanted = (num_envs, *(space.shape or ()))
    if array.shape != wanted:
        raise ValueError(f"step needs actions of shape {wanted}, one per slot; it got {array.shape}.")
    allowed = _in_space(array, space)
    if not allowed.all():
        slot = np.argwhere(~allowed)[0][0]
        raise ValueError(f"The action of slot {slot} is not in {space}: {array[slot].tolist()}.")
    return array


def checked_action(action: Any, space: ActionSpace) -> NDArray[Any]:
    """An action that the space has, of one slot alone."""
    array = _numbers(action, "An action")
    wanted = space.shape or ()
    if array.shape != wanted:
        raise ValueError(f"An action has shape {wanted}; got {array.shape}.")
    if not np.all(_in_space(array, space)):
        raise ValueError(f"The action is not in {space}: {array.tolist()}.")
    return array


def _in_space(actions: NDArray[Any], space: ActionSpace) -> NDArray[np.bool_]:
    """Which numbers of these actions lie within the bounds of the space (NaN does not)."""
    # A Box clips nothing here: it is the policy that has to stay within the bounds, or to clip by itself.
    if isinstance(space, spaces.Box):
        return np.asarray((actions >= space.low) & (actions <= space.high))
    if actions.dtype.kind == "f":
        raise ValueError(f"Actions of {space} are whole numbers, not {actions.dtype}.")
    if isinstance(space, spaces.Discrete):
        return np.asarray((actions >= space.start) & (actions < space.start + space.n))
    return np.asarray((actions >= 0) & (actions < space.nvec))


def checked_command(command: Any) -> tuple[str, Any]:
    """The name and the payload of a command that was sent to a slot; the payload of a reset is a dict."""
    if not isinstance(command, (tuple, list)) or len(command) != 2:
        raise ValueError(f'A command is a pair, ("reset", {{...}}) or ("step", action), not {command!r}.')
    name, payload = command
    if name not in ("reset", "step"):
        raise ValueError(f"A slot knows 'reset' and 'step', not {name!r}.")
    if name == "step":
        return name, payload  # the action is checked where the action space is known
    # Both parts of a reset are optional, and so is its payload: what is left out is drawn.
    payload = {} if payload is None else payload
    if not isinstance(payload, Mapping):
        raise ValueError(f"A reset takes a dict with 'task' and 'seed', both optional, not {payload!r}.")
    unknown = sorted(str(key) for key in set(payload) - {"task", "seed"})
    if unknown:
        raise ValueError(f"A reset takes 'task' and 'seed', not {unknown}.")
    return name, payload

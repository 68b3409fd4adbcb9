"""The actions of all agents as one: MultiDiscrete or Box, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.interop.spaces import MASK_KEY
from utils.options import nearest


class JointActions:
    """The joint action of each environment, from what is given by agent."""

    def __init__(self, each: Mapping[str, spaces.Space[Any]]) -> None:
        self.each = dict(each)
        self.space, self.sizes = joint_actions(self.each)
        last = np.cumsum(self.sizes).tolist()
        parts = map(slice, [0, *last[:-1]], last)
        self._parts = [(agent, space, part) for (agent, space), part in zip(each.items(), parts, strict=True)]
        bounds = [_bounds(space) for space in each.values()]
        self._low, self._high = (np.concatenate(limits) for limits in zip(*bounds, strict=True))

    def joint(
        self, actions: Mapping[str, Any] | Sequence[Mapping[str, Any]], lives: Mapping[str, NDArray[np.bool_]]
    ) -> NDArray[Any]:
        """[N, ...] from {agent: [N, ...]}, or from N dicts by agent.

        `lives` [N] says where an agent is alive; elsewhere anything may be given for it, or nothing.
        """
        if isinstance(actions, Mapping):
            given = dict(actions)
        else:
            given = {
                agent: [one.get(agent, np.nan) for one in actions]
                for agent in {name: None for one in actions for name in one}
            }
        for agent in given:
            if agent not in self.each:
                raise ValueError(f"There is no agent {agent!r}.{nearest(str(agent), self.each)}")
        acts = np.stack([lives[agent] for agent in self.each], axis=1)
        array = np.concatenate(
            [
                self._column(agent, given.get(agent), acts[:, number])
                for number, agent in enumerate(self.each)
            ],
            axis=1,
        )
        # Whoever is out has its lowest action.
        array = np.where(np.repeat(acts, self.sizes, axis=1), array, self._low)
        right = (array >= self._low) & (array <= self._high)
        is_box = isinstance(self.space, spaces.Box)
        if not is_box:
            right &= array == np.floor(array)
        if not right.all():
            self._refuse(array, right)
        return array if is_box else (array - self._low).astype(np.int64)

    def _column(self, agent: str, given: Any, acts: NDArray[np.bool_]) -> NDArray[Any]:
        """[N, size] the actions of one agent."""
        space, size = self.each[agent], self.sizes[list(self.each).index(agent)]
        if given is None:
            if acts.any():
                raise ValueError(f"{agent} is alive, and no action was given for it.")
            given = np.zeros((len(acts), size))
        array = _stacked(given, size)
        if array.shape != (len(acts), size):
            shape = (len(acts), *(space.shape or ()))
            raise ValueError(f"The actions of {agent} have the shape {np.shape(given)}, not {shape}.")
        return array

    def _refuse(self, array: NDArray[Any], right: NDArray[np.bool_]) -> None:
        """Name the first agent, and the first environment, whose action has a wrong number."""
        for agent, space, part in self._parts:
            wrong = ~right[:, part].all(axis=1)
            if wrong.any():
                slot = int(np.argmax(wrong))
                said = array[slot, part]
                raise ValueError(f"The action of {agent} in environment {slot} is not in {space}: {said}.")

    def split(self, joint: NDArray[Any]) -> dict[str, Any]:
        """The action of each agent, as its space knows it, from a joint one."""
        given = np.asarray(joint)
        return {agent: _action(space, given[part]) for agent, space, part in self._parts}


def _stacked(given: Any, size: int) -> NDArray[Any]:
    """[N, size] of what was given for N environments, in which dead agents may have NaN for an action."""
    if isinstance(given, list):
        given = [
            np.full(size, np.nan) if np.ndim(one) == 0 and one != one else np.ravel(one) for one in given
        ]
    array = np.asarray(given)
    return array.reshape(len(array), -1)


def _bounds(space: spaces.Space[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lowest and the highest number of each part of an action."""
    if isinstance(space, spaces.Box):
        return space.low.ravel(), space.high.ravel()
    start = np.ravel(space.start)  # pyright: ignore[reportAttributeAccessIssue]
    return start, start + np.array(choices_of(space)) - 1


def own_mask(obs: Any, info: Any) -> NDArray[np.bool_] | None:
    """Which choices an agent is allowed: PettingZoo says it beside what the agent sees, or in its info."""
    for said in (obs, info):
        if isinstance(said, Mapping) and said.get(MASK_KEY) is not None:
            return np.asarray(said[MASK_KEY]).astype(np.bool_)
    return None


def allowed(space: spaces.Space[Any], obs: Any, info: Any, counts: bool = True) -> NDArray[np.bool_]:
    """Which choices count: those of the agent's mask; only the first of each where no choice counts."""
    given = own_mask(obs, info) if counts else None
    if given is not None:
        return given
    return np.concatenate([(np.arange(n) == 0) | counts for n in choices_of(space)])


def choices_of(space: spaces.Space[Any]) -> list[int]:
    """The number of options of each choice."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return space.nvec.tolist()
    raise TypeError(f"Only Discrete and MultiDiscrete actions are choices, not {space}.")


def joint_actions(
    each: Mapping[str, spaces.Space[Any]],
) -> tuple[spaces.Box | spaces.MultiDiscrete, list[int]]:
    """The action space of all agents, and how many of its numbers are each one's."""
    boxes = [space for space in each.values() if isinstance(space, spaces.Box)]
    if boxes and len(boxes) == len(each):
        low, high = ([getattr(box, bound).ravel() for box in boxes] for bound in ("low", "high"))
        kind = np.result_type(np.float32, *low)
        joint = spaces.Box(
            np.concatenate(low).astype(kind), np.concatenate(high).astype(kind), dtype=kind.type
        )
        return joint, [len(part) for part in low]
    for name, space in each.items():
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            raise TypeError(f"{name} has actions that cannot stand beside those of the others: {space}.")
    choices = [choices_of(space) for space in each.values()]
    return spaces.MultiDiscrete(np.concatenate(choices)), [len(part) for part in choices]


def _action(space: spaces.Space[Any], part: NDArray[Any]) -> Any:
    """The action of one agent as its space knows it."""
    if isinstance(space, spaces.Discrete):
        return int(part[0]) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return (part + space.start).astype(space.dtype)
    return part.reshape(space.shape or ()).astype(space.dtype)

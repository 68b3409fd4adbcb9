"""Inputs: what loops hand to a player, read into arrays [N, ...] of what the agent was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Obs, map_obs
from envs.interop.gymnasium_shard import FINAL_OBS
from envs.interop.spaces import MASK_KEY, ActionWriter, ObsReader, SpaceError, ValueRefused
from envs.layout import Layout
from policies.play.rows import Flags, PlayError

# An observation of one slot or of all, or the information beside it, as a loop has it.
Given = Any


@dataclass(frozen=True)
class Seen:
    """One row of every slot, as a loop tells it."""

    # The family's own observations, without task and flag.
    obs: Obs
    reward: NDArray[np.float64]
    done: Flags
    # The new-episode flag, and the task, where the observation came with them.
    flag: Flags | None
    task: NDArray[np.float64] | None

    def following(self) -> Seen:
        """The same observations, as those that begin the next episodes."""
        return Seen(self.obs, np.zeros_like(self.reward), np.zeros_like(self.done), self.flag, self.task)


@dataclass(frozen=True)
class Face:
    """How an environment of somebody else's writes its observations and reads its actions."""

    reader: ObsReader
    writer: ActionWriter

    @classmethod
    def of(cls, env: Any, layout: Layout, *, rescale: bool) -> Face | None:
        """The face of this environment; None where its spaces are those of the agent already."""
        # A vector environment names the spaces of one of its environments so.
        obs_space = getattr(env, "single_observation_space", env.observation_space)
        action_space = getattr(env, "single_action_space", env.action_space)
        known = (layout.obs_space, layout.spec.obs_space)
        if action_space == layout.spec.action_space and obs_space in known:
            return None
        try:
            face = cls(ObsReader(obs_space, action_space), ActionWriter(action_space, rescale))
        except SpaceError as error:
            raise PlayError(f"{env} {error}.") from None
        if face.writer.space != layout.spec.action_space:
            raise PlayError(
                f"The agent acts in {layout.spec.action_space}, and {env} takes {action_space}: "
                "it is another environment than that of training."
            )
        return face


class LoopInputs:
    """Reads the arguments of `Player.act`, for one slot without a batch or for all."""

    def __init__(self, layout: Layout, num_slots: int, face: Face | None) -> None:
        self._layout, self._num_slots, self._face = layout, num_slots, face
        self._own = layout.spec.obs_space

    def is_single(self, obs: Given) -> bool:
        """Whether this is one observation without a batch; `PlayError` where the player has more slots."""
        space: Any = self._own if self._face is None else self._face.reader.raw
        if isinstance(space, spaces.Dict):
            key = next(key for key in space.spaces if key != MASK_KEY)  # a mask may come in the info
            space = space[key]
            if not isinstance(obs, Mapping) or key not in obs:
                raise PlayError(f"The observation is no dict with the part {key!r}: {self._wanted()}.")
            obs = obs[key]
        elif isinstance(obs, Mapping):
            raise PlayError(f"The observation is a dict with {sorted(map(str, obs))}: {self._wanted()}.")
        try:
            single = np.ndim(obs) == len(space.shape or ())
        except ValueError:
            raise PlayError(f"The observation has lists of different lengths: {self._wanted()}.") from None
        if single and self._num_slots > 1:
            raise PlayError(f"This is one observation, and the player has {self._num_slots} slots: load n=1.")
        return single

    def read(
        self, obs: Given, reward: Given, done: Given, info: Given, *, single: bool
    ) -> tuple[Seen, Seen | None, Flags]:
        """(the rows that have come, what begins the next episodes, and in which slots it does).

        The second is None unless the environment has begun the next episode in the same step: then the last
        observation of the one before is in `info`.
        """
        rewards, ends = self._numbers(reward, np.float64, "reward"), self._numbers(done, np.bool_, "done")
        first = self._seen(obs, rewards, ends, info, single=single)
        if info is None and ends.any() and not single and first.flag is None and self._layout.with_flag:
            raise PlayError(
                f"Slot {np.flatnonzero(ends)[0]} has ended, and only the info of a vector environment tells "
                "whether this observation is its last or the first of the next episode: give info, or "
                "info={} where it is the last."
            )

        # Where the observation begins the next episode already, the last one of this episode comes first.
        finals = self._finals(info, ends, single=single)
        begun = np.array([final is not None for final in finals], np.bool_)
        if not begun.any():
            return first, None, begun
        single_obs = [
            final if final is not None else _slot_of(obs, slot, single=single)
            for slot, final in enumerate(finals)
        ]
        last = self._seen(_stacked(single_obs), rewards, ends, info, single=False)
        return last, first.following(), begun

    # -- the parts -------------------------------------------------------------------------------------------

    def _numbers(self, value: Given, dtype: Any, what: str) -> NDArray[Any]:
        """[N] rewards or ends; one number stands for all slots."""
        array = np.asarray(value)
        if array.shape not in ((), (1,), (self._num_slots,)) or array.dtype.kind not in "fiub":
            raise PlayError(
                f"The {what} has the shape {array.shape} and the type {array.dtype}, not one number for "
                f"each of the player's slots ({self._num_slots})."
            )
        numbers = np.broadcast_to(array.astype(dtype), (self._num_slots,)).copy()
        if not np.isfinite(numbers).all():
            raise PlayError(f"The {what} is not finite: {array.tolist()}.")
        return numbers

    def _seen(self, obs: Given, rewards: Any, ends: Flags, info: Given, *, single: bool) -> Seen:
        """The observations of all slots, with the family's own part, the task and the flag apart."""
        parts, task, flag = self._split(self._arrays(obs, single=single), info, single=single)
        own: Any = self._own
        if isinstance(own, spaces.Dict):
            read: Obs = {
                key: self._part(key, parts[key], part, single=single) for key, part in own.spaces.items()
            }
        else:
            read = self._part("", parts[""], own, single=single)
        if self._layout.with_task and task is None:
            told = self._of_info(info, "task", single=single)
            if told is None:
                raise PlayError(
                    "This agent is shown its task: give it in info['task'], or in the observation."
                )
            task = np.stack([np.asarray(one, np.float64).reshape(-1) for one in told])
        return Seen(read, rewards, ends, flag, task)

    def _arrays(self, obs: Given, *, single: bool) -> dict[str, NDArray[Any]]:
        """[N, ...] the parts of the observations; one that is no dict has the name ""."""
        if self._face is not None:
            try:
                slots = [_slot_of(obs, slot, single=single) for slot in range(self._num_slots)]
                obs = _stacked([self._face.reader.read(one) for one in slots])
            except (IndexError, ValueRefused) as error:
                raise PlayError(f"{str(error).capitalize()}.") from None
        elif single:
            obs = _stacked([obs])
        obs = dict(obs) if isinstance(obs, Mapping) else {"": obs}
        return {key: np.asarray(part) for key, part in obs.items()}

    def _split(
        self, arrays: dict[str, NDArray[Any]], info: Given, *, single: bool
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64] | None, Flags | None]:
        """(parts of the family's own observation, task, flag)."""
        extra, own = self._layout.extra, self._own
        found: dict[str, NDArray[Any]] = {}
        if isinstance(own, spaces.Dict):
            found = {key: arrays.pop(key) for key in extra if key in arrays}
            if MASK_KEY in own.spaces and MASK_KEY not in arrays:
                told = self._of_info(info, MASK_KEY, single=single)
                if told is not None:
                    arrays[MASK_KEY] = np.stack([np.asarray(one) for one in told])
            if arrays.keys() != own.spaces.keys():
                raise PlayError(f"The observation has the parts {sorted(arrays)}: {self._wanted()}.")
        elif extra and arrays.keys() == {""} and arrays[""].ndim == 2:
            # Task and flag are the last numbers of a vector, and a loop may show it with or without them.
            (vector,), size = arrays.values(), own.shape[0]
            for key, width in extra.items():
                if vector.shape[1] >= size + width and (key != Layout.FLAG_KEY or self._whole(vector)):
                    found[key] = vector[:, size : size + width]
                    size += width
            if vector.shape[1] == size:
                arrays = {"": vector[:, : own.shape[0]]}
        task, flag = found.get(Layout.TASK_KEY), found.get(Layout.FLAG_KEY)
        return (
            arrays,
            None if task is None else task.astype(np.float64),
            None if flag is None else flag.reshape(len(flag), -1)[:, 0] != 0,
        )

    def _whole(self, vector: NDArray[Any]) -> bool:
        """Whether a vector has all of its extra numbers; a flag alone would be taken for part of a task."""
        return vector.shape[1] == self._own_size() + sum(self._layout.extra.values())

    def _own_size(self) -> int:
        return int(np.prod(self._own.shape or ()))

    def _part(self, key: str, array: NDArray[Any], space: Any, *, single: bool) -> NDArray[Any]:
        """One part as it stands in rows: of its shape and type, and finite."""
        name = f"observation {key!r}" if key else "observation"
        if array.shape != (self._num_slots, *space.shape) or array.dtype.kind not in "fiub":
            shape = array.shape[1:] if single else array.shape  # as it was given
            raise PlayError(f"The {name} has the shape {shape} and the type {array.dtype}: {self._wanted()}.")
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is refused below
            stored = array.astype(space.dtype)
        exact = space.dtype.kind == "f" or np.array_equal(stored, array)
        if not exact or not np.isfinite(stored).all():
            raise PlayError(
                f"The {name} has numbers that are not finite, or no {space.dtype}: {self._wanted()}."
            )
        return stored

    def _wanted(self) -> str:
        """What the observation should have been."""
        layout, slots = self._layout, f"[{self._num_slots}, ...]"
        own: Any = self._own
        if isinstance(own, spaces.Dict):
            shapes = ", ".join(f"{key!r} {part.shape}" for key, part in own.spaces.items())
            return f"this agent reads {shapes} for each slot, {slots} for all"
        with_extra = ""
        if layout.extra:
            with_extra = f", or {layout.obs_space.shape} with {' and '.join(layout.extra)}"
        return f"this agent reads {own.shape}{with_extra} for each slot, {slots} for all"

    def _of_info(self, info: Given, key: str, *, single: bool) -> list[Any] | None:
        """What the infos tell under this name, slot by slot; None where they do not."""
        # Gymnasium's vector environments have one dict of arrays, those of Stable-Baselines3 a list of dicts.
        if isinstance(info, Sequence):
            if len(info) != self._num_slots or not all(isinstance(one, Mapping) for one in info):
                raise PlayError(f"The info is a list, and not one of {self._num_slots} dicts.")
            told = [one.get(key) for one in info]
        elif not isinstance(info, Mapping) or info.get(key) is None:
            return None
        else:
            told = [_slot_of(info[key], slot, single=single) for slot in range(self._num_slots)]
        return told

    def _finals(self, info: Given, ends: Flags, *, single: bool) -> list[Any]:
        """By slot the last observation of the episode that has ended there, where the infos have one."""
        for key in FINAL_OBS:
            told = self._of_info(info, key, single=single)
            if told is not None and any(one is not None for one in told):
                return [one if ended else None for one, ended in zip(told, ends.tolist(), strict=True)]
        return [None] * self._num_slots


def _slot_of(value: Given, slot: int, *, single: bool) -> Any:
    """What belongs to one slot."""
    if single:
        return value
    return map_obs(lambda part: part[slot], dict(value) if isinstance(value, Mapping) else value)


def _stacked(values: Sequence[Given]) -> Any:
    """The observations of all slots, in one batch."""
    if isinstance(values[0], Mapping):
        return {key: np.stack([np.asarray(value[key]) for value in values]) for key in values[0]}
    try:
        return np.stack([np.asarray(value) for value in values])
    except ValueError as error:
        raise PlayError(f"The observations of the slots differ in shape: {error}.") from None

"""One space for the observations of all parts of a mixture, and one for their actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace, EnvSpec, Obs, ObsSpace
from envs.interop.spaces import MASK_KEY
from envs.meta.kernels import checked_choices, clipped_actions
from utils.options import OptionError

# The keys of observations that have none in their family: a vector, and a picture.
VECTOR, PICTURE = "vector", "picture"
# The key of the one-hot that tells which part is played.
PART = "part"


class SharedObs:
    """The observations of all parts in one space: each padded with zeros at its end.

    Where every part shows a vector, the mixture shows one, with the one-hot of the part behind it. Otherwise
    it shows a Dict of all that any part shows, and what a part does not show is zero there.
    """

    def __init__(self, specs: Sequence[EnvSpec], choices: SharedActions, *, show_part: bool) -> None:
        self._boxes = [_by_key(spec.obs_space) for spec in specs]
        self._is_dict = [isinstance(spec.obs_space, spaces.Dict) for spec in specs]
        self._choices = choices.to_mask(any(MASK_KEY in boxes for boxes in self._boxes))
        self._show_part = show_part
        keys = list(dict.fromkeys(key for boxes in self._boxes for key in boxes if key != MASK_KEY))
        shown: dict[str, spaces.Box] = {key: self._padded(key, specs) for key in keys}
        self._is_vector = keys == [VECTOR] and self._choices is None
        self._width = shown[VECTOR].shape[0] if self._is_vector else 0
        if show_part:
            if PART in keys:
                raise OptionError(
                    f"A part shows {PART!r}, which tells the parts apart: give show_part=false."
                )
            shown[PART] = spaces.Box(0.0, 1.0, (len(specs),), np.float32)
        if self._choices is not None:
            shown[MASK_KEY] = spaces.Box(0, 1, (max(self._choices),), np.int8)
        self.space: ObsSpace = spaces.Dict({**shown})
        if self._is_vector:
            self.space = _side_by_side(list(shown.values()))

    def _padded(self, key: str, specs: Sequence[EnvSpec]) -> spaces.Box:
        """The box that holds what each part shows under a key, zeros included."""
        boxes = [own[key] for own in self._boxes if key in own]
        if len({len(box.shape) for box in boxes}) > 1:
            shapes = ", ".join(
                f"{spec.name} {own[key].shape}"
                for spec, own in zip(specs, self._boxes, strict=True)
                if key in own
            )
            raise OptionError(f"The parts show {key!r} in shapes of different kinds: {shapes}.")
        shape = tuple(np.max([box.shape for box in boxes], axis=0).tolist())
        whole = all(box.dtype == np.uint8 for box in boxes)
        low, high = np.zeros(shape), np.zeros(shape)
        for box in boxes:
            place = tuple(slice(0, size) for size in box.shape)
            low[place] = np.minimum(low[place], box.low)
            high[place] = np.maximum(high[place], box.high)
        dtype = np.uint8 if whole else np.float32
        return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)

    def write(self, target: Obs, part: int, slots: NDArray[np.int64], shown: Obs) -> None:
        """Write what these slots of a part show (`shown` is that of all slots) into the mixture's rows."""
        own = shown if isinstance(shown, dict) else {next(iter(self._boxes[part])): shown}
        for key, array in self._arrays(target).items():
            array[slots] = 0
            if key in own:
                inner = tuple(slice(0, size) for size in own[key].shape[1:])
                array[(slots, *inner)] = own[key][slots]
            elif key == PART:
                array[slots, part] = 1
            elif key == MASK_KEY and self._choices is not None:
                array[slots, : self._choices[part]] = 1  # this part allows all that it has

    def read(self, obs: Obs, part: int) -> Obs:
        """What a part shows, out of observations of the mixture [n, ...]."""
        arrays, boxes = self._arrays(obs), self._boxes[part]
        own = {
            key: arrays[key][(slice(None), *(slice(0, size) for size in box.shape))].astype(box.dtype)
            for key, box in boxes.items()
        }
        return own if self._is_dict[part] else next(iter(own.values()))

    def _arrays(self, obs: Obs) -> dict[str, NDArray[Any]]:
        """Views of the parts of an observation by key, a vector cut where the one-hot begins."""
        if isinstance(obs, dict):
            return obs
        arrays = {VECTOR: obs[:, : self._width]}
        if self._show_part:
            arrays[PART] = obs[:, self._width : self._width + len(self._boxes)]
        return arrays


class SharedActions:
    """The actions of all parts in one space.

    Of continuous actions a part reads the first numbers. Of choices it has the first ones, the others are
    masked, and one of those that is taken all the same acts as the part's last one.
    """

    def __init__(self, names: Sequence[str], specs: Sequence[EnvSpec]) -> None:
        own: list[ActionSpace] = [spec.action_space for spec in specs]
        first, self._own = own[0], own
        self.space: ActionSpace = first
        discrete = [space for space in own if isinstance(space, spaces.Discrete)]
        boxes = [space for space in own if isinstance(space, spaces.Box)]
        if len(discrete) == len(own):
            self.space = spaces.Discrete(max(int(space.n) for space in discrete))
        elif len(boxes) == len(own) and all(len(space.shape) == 1 for space in boxes):
            self.space = spaces.Box(-1.0, 1.0, (max(space.shape[0] for space in boxes),), np.float32)
        elif any(space != first for space in own):
            kinds = ", ".join(f"{name} {space}" for name, space in zip(names, own, strict=True))
            raise OptionError(f"One agent cannot choose the actions of all parts: {kinds}.")

    def to_mask(self, masked: bool) -> list[int] | None:
        """The choices that each part has, where they differ or some part is `masked`; else None."""
        counts = [
            int(np.sum(space.n if isinstance(space, spaces.Discrete) else space.nvec))
            for space in self._own
            if not isinstance(space, spaces.Box)
        ]
        return counts if counts and (masked or len(set(counts)) > 1) else None

    def checked(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> NDArray[Any]:
        """These actions of the mixture; one that is none is refused by its slot."""
        if isinstance(self.space, spaces.Discrete):
            return checked_choices(actions, slots, int(self.space.n))
        if isinstance(self.space, spaces.Box):
            clipped_actions(actions, slots)  # each part clips its own; here only NaN is refused
        return actions

    def of_part(self, part: int, actions: NDArray[Any]) -> NDArray[Any]:
        """[n, ...] checked actions as a part takes them."""
        own = self._own[part]
        if isinstance(own, spaces.Discrete):
            return np.minimum(actions, own.n - 1)
        if isinstance(own, spaces.Box):
            return np.ascontiguousarray(actions[:, : own.shape[0]])
        return actions

    def from_part(self, actions: NDArray[Any]) -> NDArray[Any]:
        """[n, ...] actions of a part as the mixture has them."""
        if not isinstance(self.space, spaces.Box):
            return actions
        padded = np.zeros((len(actions), *self.space.shape), actions.dtype)
        padded[:, : actions.shape[1]] = actions
        return padded


def _by_key(space: ObsSpace) -> dict[str, spaces.Box]:
    """The boxes of an observation by key."""
    if isinstance(space, spaces.Box):
        return {VECTOR if len(space.shape) == 1 else PICTURE: space}
    boxes: dict[str, spaces.Box] = {}
    for key, part in space.spaces.items():
        assert isinstance(part, spaces.Box), "an observation is a flat dict of arrays"
        boxes[key] = part
    return boxes


def _side_by_side(boxes: Sequence[spaces.Box]) -> spaces.Box:
    """One vector of several."""
    low, high = ([getattr(box, name) for box in boxes] for name in ("low", "high"))
    return spaces.Box(np.concatenate(low), np.concatenate(high), dtype=np.float32)

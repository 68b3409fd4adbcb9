"""Gymnasium spaces as arrays: observations of third-party environments become rows, actions become theirs.

Each part of an observation has one stated encoding, and a value that is not exactly of its space is refused
before it is stored:

    Box            as it is; float64 becomes float32; integers keep their type
    Discrete       one-hot, float32 [n]
    MultiDiscrete  one-hot of each part, one after the other, float32 [sum(nvec)]
    MultiBinary    float32, 0 or 1
    Dict           each of its parts (which may not be Dicts again);
                   `action_mask` stays whole numbers, int8 [n], 1 where an action is allowed
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace, Obs, ObsSpace, SlotError
from envs.layout import Layout

# The part of a Dict observation that marks which actions are allowed.
MASK_KEY = "action_mask"

FLOAT32_MAX = float(np.finfo(np.float32).max)


class SpaceError(ValueError):
    """A space that has no encoding here; its text is one sentence without the environment's name."""


class ValueRefused(ValueError):
    """A value that is not of its space; the text says what it is and what it should have been."""


class Part(ABC):
    """One array of the observation: how it stands in a row, and which values may be written there."""

    box: spaces.Box

    @abstractmethod
    def read(self, value: Any) -> NDArray[Any]:
        """The array to store for this value of the environment, or `ValueRefused`.

        It may be a buffer of the environment, so it has to be copied.
        """


class Numbers(Part):
    """A Box: floating-point numbers become float32, whole numbers keep their type and stay in their range."""

    def __init__(self, space: spaces.Box) -> None:
        kind = space.dtype.kind
        if kind not in "fiub":
            raise SpaceError(f"is a Box of {space.dtype}: numbers are needed")
        stored = {"f": np.dtype(np.float32), "b": np.dtype(np.uint8)}
        dtype = stored.get(kind, space.dtype)
        with np.errstate(over="ignore"):  # bounds beyond float32 become infinite: no bounds
            self.box = spaces.Box(space.low.astype(dtype), space.high.astype(dtype), space.shape, dtype.type)
        self._floats = kind == "f"
        self._accepted = space.dtype
        # Bounds that the type itself enforces need no check.
        self._ranged = kind == "b" or (kind in "iu" and not _spans_its_type(space))

    def read(self, value: Any) -> NDArray[Any]:
        array = plain_array(value, self.box.shape)
        if array.dtype != self._accepted and not self._fits(array.dtype):
            raise ValueRefused(f"is of type {array.dtype}, not {self._accepted}")
        if self._floats:
            # One test finds NaN (which spreads through max), infinities, and what float32 cannot hold.
            if array.size and not float(np.abs(array).max()) <= FLOAT32_MAX:
                raise ValueRefused(f"is not finite (in float32): {shortened(array.tolist())}")
        elif self._ranged and not ((array >= self.box.low) & (array <= self.box.high)).all():
            raise ValueRefused(f"is outside of its bounds: {shortened(array.tolist())}")
        return array

    def _fits(self, dtype: np.dtype[Any]) -> bool:
        """Whether a type other than the space's may be stored."""
        # Any floats become float32; whole numbers must survive unchanged.
        if self._floats:
            return dtype.kind == "f"
        return dtype.kind in "iub" and np.can_cast(dtype, self.box.dtype, "safe")


class OneHot(Part):
    """Whole numbers as one-hot vectors, one after the other."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        self._shape: tuple[int, ...] = space.shape or ()
        self._start = np.asarray(space.start, np.int64).reshape(-1)
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        self._count = np.asarray(counts, np.int64).reshape(-1)
        # Where in the vector the choices of each number begin.
        self._first = np.cumsum(self._count) - self._count
        self.box = spaces.Box(0.0, 1.0, (int(self._count.sum()),), np.float32)

    def read(self, value: Any) -> NDArray[Any]:
        array = plain_array(value, self._shape)
        if array.dtype.kind not in "iu":
            raise ValueRefused(f"is of type {array.dtype}, not a whole number")
        # Each number becomes the index of its 1 in the vector.
        number = array.reshape(-1) - self._start
        if ((number < 0) | (number >= self._count)).any():
            raise ValueRefused(f"is outside of its range: {shortened(array.tolist())}")
        hot = np.zeros(self.box.shape, np.float32)
        hot[self._first + number] = 1.0
        return hot


class Bits(Part):
    """Zeros and ones, as float32, or as int8 for a mask."""

    def __init__(self, shape: tuple[int, ...], dtype: type[Any] = np.float32) -> None:
        self.box = spaces.Box(0, 1, shape, dtype)

    def read(self, value: Any) -> NDArray[Any]:
        array = plain_array(value, self.box.shape)
        if array.dtype.kind not in "iub":
            raise ValueRefused(f"is of type {array.dtype}, not zeros and ones")
        if ((array != 0) & (array != 1)).any():
            raise ValueRefused(f"is not of zeros and ones: {shortened(array.tolist())}")
        return array


def _spans_its_type(space: spaces.Box) -> bool:
    limits = np.iinfo(str(space.dtype))
    return bool((space.low == limits.min).all() and (space.high == limits.max).all())


def plain_array(value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """The value, if it is an array (or for shape () a number) of exactly this shape.

    Nothing is broadcast, and lists are not converted.
    """
    # The usual case first; then subclasses of arrays, without what they add (a mask could hide values).
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        array = value.view(np.ndarray)
    elif isinstance(value, np.generic) or (shape == () and isinstance(value, (int, float))):
        array = np.asarray(value)
    elif value is None:
        raise ValueRefused("is None")
    else:
        raise ValueRefused(f"is a {type(value).__name__}, not an array of shape {shape}")
    if array.shape != shape:
        raise ValueRefused(f"has the shape {array.shape}, not {shape}")
    return array


def shortened(value: Any, limit: int = 200) -> str:
    """A value as text of at most so many characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


class ObsReader:
    """Reads the observations of one space; `space` is what the rows hold."""

    def __init__(self, space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.raw = space
        # An observation is one part, or a flat dict of parts.
        if not isinstance(space, spaces.Dict):
            self._whole: Part | None = _part_of(space, "the observation space")
            self._parts: dict[str, Part] = {}
            self.space: ObsSpace = self._whole.box
            return
        self._whole, self._parts = None, {}
        for key, part in space.spaces.items():
            if key in (Layout.TASK_KEY, Layout.FLAG_KEY):
                raise SpaceError(
                    f"has an observation {key!r}, a name that is reserved for what is added to observations: "
                    "rename it"
                )
            if key == MASK_KEY:
                self._parts[key] = _mask_of(part, action_space)
            else:
                self._parts[key] = _part_of(part, f"the observation {key!r}")
        self.space = spaces.Dict({key: part.box for key, part in self._parts.items()})

    def read(self, value: Any) -> Obs:
        """The arrays to store for one observation, or `ValueRefused`.

        They may be buffers of the environment, so they have to be copied.
        """
        if self._whole is not None:
            try:
                return self._whole.read(value)
            except ValueRefused as error:
                raise ValueRefused(f"the observation {error}") from None
        # A Dict: exactly its keys, and each part checked on its own, so that the error can name it.
        if not isinstance(value, dict):
            raise ValueRefused(f"the observation is a {type(value).__name__}, not a dict")
        if value.keys() != self._parts.keys():
            missing = sorted(self._parts.keys() - value.keys())
            extra = sorted(map(str, value.keys() - self._parts.keys()))
            raise ValueRefused(
                "the observation has other keys than its space: "
                f"{missing} are missing and {extra} are too much"
            )
        arrays = {}
        for key, part in self._parts.items():
            try:
                arrays[key] = part.read(value[key])
            except ValueRefused as error:
                raise ValueRefused(f"the observation {key!r} {error}") from None
        return arrays


def _part_of(space: spaces.Space[Any], what: str) -> Part:
    """The encoding of this space; `what` names it in the error."""
    try:
        if isinstance(space, spaces.Box):
            return Numbers(space)
    except SpaceError as error:
        raise SpaceError(f"cannot be read: {what} {error}") from None
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return OneHot(space)
    if isinstance(space, spaces.MultiBinary):
        return Bits(space.shape)
    raise SpaceError(
        f"cannot be read: {what} is a {type(space).__name__}, and Box, Discrete, MultiDiscrete, MultiBinary "
        "and one flat Dict of them can: wrap it, for example in gymnasium.wrappers.FlattenObservation"
    )


def _mask_of(space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Part:
    """The encoding of an action mask, whose length must be the number of choices."""
    # One entry for every choice; the choices of the parts of a MultiDiscrete stand one after the other.
    n: int | None = None
    if isinstance(action_space, spaces.Discrete):
        n = int(action_space.n)
    elif isinstance(action_space, spaces.MultiDiscrete):
        n = int(action_space.nvec.sum())
    # Libraries spell a mask in three ways; all are whole numbers, one for each choice.
    whole = (
        isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete))
        and space.dtype is not None
        and space.dtype.kind in "iub"
    )
    if n is None or not whole or space.shape != (n,):
        expected = "discrete" if n is None else n
        raise SpaceError(
            f"has an observation {MASK_KEY!r} that cannot be a mask of its actions: "
            f"{expected} whole numbers belong to {action_space}, not {space}"
        )
    return Bits((n,), np.int8)


# -- actions -------------------------------------------------------------------------------------------------


class ActionWriter:
    """Turns a policy's actions into the environment's; `space` is what the policy acts in.

    Box: [-1, 1] stretched to the bounds (`rescale`), or the bounds themselves; an action beyond a bound is
    clipped to it. Discrete and MultiDiscrete: counted from 0, whatever they start from. MultiBinary: a
    MultiDiscrete of twos.
    """

    def __init__(self, space: spaces.Space[Any], rescale: bool = True) -> None:
        self.raw = space
        self._start: Any = 0
        self._dtype: Any = space.dtype
        if isinstance(space, spaces.Box):
            self.space: ActionSpace = self._stretched(space, rescale)
        elif isinstance(space, spaces.Discrete):
            self.space = spaces.Discrete(int(space.n))
            self._start, self._highest = space.start, space.n - 1
        elif isinstance(space, spaces.MultiDiscrete) and len(space.nvec.shape) == 1:
            self.space = spaces.MultiDiscrete(space.nvec)
            self._start, self._highest = space.start, space.nvec - 1
        elif isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
            self.space = spaces.MultiDiscrete(np.full(space.shape, 2))
            self._highest = np.ones(space.shape, np.int64)
        else:
            raise SpaceError(
                f"cannot be acted on: its actions are {space}, "
                "and Box, Discrete, flat MultiDiscrete and flat MultiBinary are served"
            )

    def _stretched(self, space: spaces.Box, rescale: bool) -> spaces.Box:
        """The Box that the policy acts in: [-1, 1] in every dimension if the actions are rescaled."""
        if space.dtype.kind != "f":
            raise SpaceError(
                f"cannot be acted on: its actions are a Box of {space.dtype}, "
                "and real numbers, Discrete or MultiDiscrete are served"
            )
        self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._half: NDArray[np.float64] | None = None
        # Without rescaling the policy acts within the environment's own bounds, which may be infinite.
        if not rescale:
            with np.errstate(over="ignore"):
                return spaces.Box(
                    space.low.astype(np.float32), space.high.astype(np.float32), space.shape, np.float32
                )
        if not space.is_bounded():
            raise SpaceError(
                f"has actions without bounds ({space}), which cannot be stretched from [-1, 1]: "
                "bound them with gymnasium.wrappers.RescaleAction or ClipAction, or set rescale_actions=false"
            )
        # Halves first, then the difference: high - low may overflow where half of each does not.
        if (self._low != -1.0).any() or (self._high != 1.0).any():
            self._half, self._center = self._high / 2 - self._low / 2, self._high / 2 + self._low / 2
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)

    def convert(self, actions: NDArray[Any], slots: NDArray[np.int64]) -> NDArray[Any]:
        """[n, ...] the environment's actions, in an array of their own.

        One that is no action of the policy's space is a `SlotError` of its slot.
        """
        given = np.asarray(actions)
        if not isinstance(self.space, spaces.Box):
            # Choices are counted from 0 here, and from `start` in the environment.
            wrong = (given != np.floor(given)) | (given < 0) | (given > self._highest)
            self._refuse(wrong, given, slots, f"is none of {self.space}")
            return (given.astype(np.int64) + self._start).astype(self._dtype)
        self._refuse(~np.isfinite(given), given, slots, "is not a finite number")
        if self._half is None:
            return np.clip(given, self._low, self._high).astype(self._dtype)
        # Stretched in float64, then clipped again: rounding may lead beyond a bound by a last bit.
        stretched = self._center + self._half * np.clip(given, -1.0, 1.0, dtype=np.float64)
        return np.clip(stretched, self._low, self._high).astype(self._dtype)

    @staticmethod
    def _refuse(wrong: NDArray[np.bool_], actions: NDArray[Any], slots: NDArray[np.int64], why: str) -> None:
        """Raise a `SlotError` for the first slot whose action has a wrong number."""
        if wrong.any():
            bad = int(np.flatnonzero(wrong.reshape(len(slots), -1).any(axis=1))[0])
            raise SlotError(int(slots[bad]), f"the action {shortened(actions[bad].tolist())} {why}")


def allowed_choices(
    space: spaces.Discrete | spaces.MultiDiscrete,
    uniforms: NDArray[np.float64],
    mask: NDArray[Any] | None = None,
) -> NDArray[np.int64]:
    """Uniform actions [N] or [N, A] from numbers in [0, 1) of that shape, among those the mask [N, n] allows.

    Where a mask allows nothing, as it may on the last row of an episode, every choice is allowed.
    """
    parts = np.array([space.n]) if isinstance(space, spaces.Discrete) else space.nvec
    numbers = uniforms.reshape(len(uniforms), len(parts))
    chosen = np.empty(numbers.shape, np.int64)
    for part, (stop, count) in enumerate(zip(np.cumsum(parts), parts, strict=True)):
        allowed = np.ones((len(numbers), count), np.bool_)
        if mask is not None:
            allowed = mask[:, stop - count : stop] != 0
            allowed = allowed | ~allowed.any(axis=1, keepdims=True)
        # The number of the choice among the allowed ones, then the choice that has so many allowed before it.
        wanted = np.floor(numbers[:, part] * allowed.sum(axis=1)).astype(np.int64)
        chosen[:, part] = np.argmax(np.cumsum(allowed, axis=1) > wanted[:, None], axis=1)
    return chosen.reshape(uniforms.shape)

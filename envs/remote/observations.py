"""Observations of a service: fields of its JSON become one vector, legal actions become an `action_mask`.

A schema names fields and gives no bounds and no sizes, so these are declared, and checked in every answer:

    observation: [board:42, turn]     numbers, lists and lists of lists of them, flattened one after the other
    text: [hint:80]                   the bytes of a text (UTF-8) over 255, and zeros behind its end
    mask: legal_actions               the numbers of the legal actions; `legal:flags` has a flag for each
    read: my_module:vector            or a function of the observation (a dict) that returns the vector,
    read_size: 42                     of so many numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import Obs, ObsSpace
from envs.interop.spaces import MASK_KEY
from envs.remote.words import imported_function, named_size
from utils.options import OptionError

VECTOR_KEY = "observation"


class FieldError(ValueError):
    """An observation that is not as it was declared; the text names the field."""


@dataclass(frozen=True)
class FieldReader:
    """How an observation of a service becomes one of ours."""

    numbers: tuple[tuple[str, int], ...]
    texts: tuple[tuple[str, int], ...] = ()
    mask: str | None = None
    mask_is_flags: bool = False
    # The choices that a mask is over.
    num_choices: int = 0
    function: str | None = None
    function_size: int = 0

    @classmethod
    def of(
        cls,
        observation: Sequence[str],
        text: Sequence[str],
        mask: str | None,
        num_choices: int | None,
        read: str | None,
        read_size: int,
    ) -> FieldReader:
        """The reader that options describe; contradictions are refused."""
        if read is not None:
            if observation or text:
                raise OptionError("read= makes the whole vector: leave observation= and text= out.")
            if not read_size:
                raise OptionError("read= needs read_size=, how many numbers the function returns.")
            imported_function("read", read)
        elif not observation and not text:
            raise OptionError("observation= has to name the fields that are seen, as in [board:42,turn].")
        name, _, form = (mask or "").partition(":")
        if mask is not None and (not name or form not in ("", "flags")):
            raise OptionError(f"mask: {mask!r} should be the name of a field, or name:flags.")
        if mask is not None and num_choices is None:
            raise OptionError("mask= says which actions are legal, and these actions are no choices.")
        return cls(
            tuple(named_size("observation", one) for one in observation),
            tuple(named_size("text", one, default=None) for one in text),
            name or None,
            form == "flags",
            num_choices or 0,
            read,
            read_size,
        )

    @property
    def names(self) -> list[str]:
        """The fields that are read."""
        masks = [self.mask] if self.mask is not None else []
        return [name for name, _ in (*self.numbers, *self.texts)] + masks

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.function_size or sum(size for _, size in (*self.numbers, *self.texts))

    @property
    def space(self) -> ObsSpace:
        """What the agent sees."""
        vector = spaces.Box(-np.inf, np.inf, (self.size,), np.float32)
        if self.mask is None:
            return vector
        return spaces.Dict({VECTOR_KEY: vector, MASK_KEY: spaces.Box(0, 1, (self.num_choices,), np.int8)})

    def read(self, observation: dict[str, Any]) -> Obs:
        """The arrays of an observation, or a `FieldError`."""
        vector = self._vector(observation)
        if not np.isfinite(vector).all():
            raise FieldError(f"the observation is not finite: {vector.tolist()}"[:500])
        if self.mask is None:
            return vector
        return {VECTOR_KEY: vector, MASK_KEY: self._flags(_field(observation, self.mask))}

    def _vector(self, observation: dict[str, Any]) -> NDArray[np.float32]:
        if self.function is not None:
            made = imported_function("read", self.function)(observation)
            return _flat(made, "the vector of read=", self.size)
        parts = [_flat(_field(observation, name), f"field {name!r}", size) for name, size in self.numbers]
        parts += [_bytes(_field(observation, name), name, size) for name, size in self.texts]
        return np.concatenate(parts)

    def _flags(self, value: Any) -> NDArray[np.int8]:
        array = _flat(value, f"field {self.mask!r}", None)
        flags = array
        if not self.mask_is_flags:
            if (array != np.rint(array)).any() or (array < 0).any() or (array >= self.num_choices).any():
                raise FieldError(f"field {self.mask!r} is {value}, not among 0 to {self.num_choices - 1}")
            flags = np.zeros(self.num_choices, np.float32)
            flags[array.astype(np.int64)] = 1.0
        if flags.shape != (self.num_choices,) or not np.isin(flags, (0.0, 1.0)).all():
            raise FieldError(f"field {self.mask!r} is {value}, not {self.num_choices} flags")
        return flags.astype(np.int8)


def _field(observation: dict[str, Any], name: str) -> Any:
    if name not in observation:
        raise FieldError(f"field {name!r} is missing")
    return observation[name]


def _flat(value: Any, what: str, size: int | None) -> NDArray[np.float32]:
    """A number, or lists of numbers, as one vector."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiub" and array.size:
        raise FieldError(f"{what} is {value!r}, no numbers"[:500])
    if size is not None and array.size != size:
        raise FieldError(f"{what} has {array.size} numbers, and {size} were declared")
    with np.errstate(over="ignore"):  # it becomes infinite, which is refused
        return array.astype(np.float32).reshape(-1)


def _bytes(value: Any, name: str, size: int) -> NDArray[np.float32]:
    if not isinstance(value, str):
        raise FieldError(f"field {name!r} is {value!r}, no text"[:500])
    # A text that is cut within a letter keeps the first bytes of it: they are numbers to the agent.
    data = np.frombuffer(value.encode()[:size], np.uint8)
    vector = np.zeros(size, np.float32)
    vector[: len(data)] = data / np.float32(255.0)
    return vector

"""Actions of an agent as the JSON of a service.

    action_kind: discrete        actions: [column:7]              {"column": 3}
    action_kind: several         actions: [row:3,column:3]        {"row": 0, "column": 2}   (MultiDiscrete)
    action_kind: numbers         actions: [force:1:-2:2,aim:2]    {"force": 0.5, "aim": [0.1, -1.0]}
    action_kind: text            actions: [message]               {"message": texts[i]}

`numbers` stretches [-1, 1] to the bounds behind the size, and leaves it alone where there are none. `write`
names a function (module:function) that gets this dict and returns another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import ActionSpace
from envs.remote.words import imported_function, named_size
from utils.options import OptionError


class RemoteActionKind(Enum):
    """What the agent chooses: one of n, several of n each, real numbers, or one of some texts."""

    discrete = "discrete"
    several = "several"
    numbers = "numbers"
    text = "text"


class ActionRefusedError(ValueError):
    """An action that is none; the text says why."""


@dataclass(frozen=True)
class ActionField:
    """A field of an action: so many choices, or so many numbers with their bounds."""

    name: str
    size: int
    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True)
class FieldWriter:
    """How an action of ours becomes one of a service."""

    kind: RemoteActionKind
    fields: tuple[ActionField, ...]
    texts: tuple[str, ...] = ()
    function: str | None = None

    @classmethod
    def of(
        cls, kind: RemoteActionKind, actions: Sequence[str], texts: Sequence[str], write: str | None
    ) -> FieldWriter:
        """The writer that options describe; contradictions are refused."""
        if not actions:
            raise OptionError("actions= has to name the fields of an action, as in [column:7].")
        single = kind in (RemoteActionKind.discrete, RemoteActionKind.text)
        if single and len(actions) > 1:
            raise OptionError(f"action_kind={kind.name} has one field, not {len(actions)}: use several.")
        if (kind is RemoteActionKind.text) != bool(texts):
            raise OptionError("texts= and action_kind=text belong together: give both or none.")
        if write is not None:
            imported_function("write", write)
        if kind is RemoteActionKind.text:
            fields = [ActionField(actions[0], len(texts))]
        elif kind is RemoteActionKind.numbers:
            fields = [_bounded(text) for text in actions]
        else:
            fields = [ActionField(*named_size("actions", text, default=None)) for text in actions]
        return cls(kind, tuple(fields), tuple(texts), write)

    @property
    def names(self) -> list[str]:
        """The fields that are written; with a function of the user's nobody knows them."""
        return [] if self.function is not None else [field.name for field in self.fields]

    @property
    def space(self) -> ActionSpace:
        """What the agent chooses from."""
        sizes = [field.size for field in self.fields]
        if self.kind is RemoteActionKind.numbers:
            return spaces.Box(-1.0, 1.0, (sum(sizes),), np.float32)
        if self.kind is RemoteActionKind.several:
            return spaces.MultiDiscrete(sizes)
        return spaces.Discrete(sizes[0])

    @property
    def num_choices(self) -> int | None:
        """The entries of a mask; None where nothing is chosen among a few."""
        return None if self.kind is RemoteActionKind.numbers else sum(field.size for field in self.fields)

    def write(self, action: NDArray[Any]) -> dict[str, Any]:
        """The fields of one action as plain values of Python, which JSON can hold."""
        values = np.asarray(action).reshape(-1)
        filled = self._numbers(values) if self.kind is RemoteActionKind.numbers else self._choices(values)
        return filled if self.function is None else imported_function("write", self.function)(filled)

    def _choices(self, values: NDArray[Any]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for field, value in zip(self.fields, values.tolist(), strict=True):
            if value != int(value) or not 0 <= value < field.size:
                raise ActionRefusedError(f"the action {value} is none of 0 to {field.size - 1}")
            filled[field.name] = self.texts[int(value)] if self.texts else int(value)
        return filled

    def _numbers(self, values: NDArray[Any]) -> dict[str, Any]:
        if np.isnan(values).any():
            raise ActionRefusedError(f"the action {values.tolist()} is not a number")
        clipped, filled, start = np.clip(values.astype(np.float64), -1.0, 1.0), {}, 0
        for field in self.fields:
            part = clipped[start : start + field.size]
            start += field.size
            stretched = (field.low + (part + 1.0) * (field.high - field.low) / 2.0).tolist()
            filled[field.name] = stretched[0] if field.size == 1 else stretched
        return filled


def _bounded(text: str) -> ActionField:
    """The field of name:size, or of name:size:low:high."""
    parts = text.split(":")
    if len(parts) != 4:
        return ActionField(*named_size("actions", text, default=None))
    name, size = named_size("actions", ":".join(parts[:2]))
    try:
        low, high = float(parts[2]), float(parts[3])
    except ValueError:
        low = high = np.nan
    if not -np.inf < low < high < np.inf:
        raise OptionError(f"actions: {text!r} should be name:size:low:high, with low below high.")
    return ActionField(name, size, low, high)

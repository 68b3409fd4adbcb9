"""Fields of an observation as one vector: sizes are checked, and nothing that is no number passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.remote.observations import FieldError, FieldReader
from utils.options import OptionError


def reader(
    observation: list[str], text: list[str] | None = None, mask: str | None = None, choices: int | None = 3
) -> FieldReader:
    return FieldReader.of(observation, text or [], mask, choices, None, 0)


def test_fields_stand_one_after_the_other() -> None:
    made = reader(["board:4", "turn"], ["hint:6"])
    vector = made.read({"board": [[1, 2], [3, 4]], "turn": True, "hint": "hé", "more": None})
    assert isinstance(vector, np.ndarray) and vector.dtype == np.float32
    assert vector[:5].tolist() == [1, 2, 3, 4, 1]
    assert bytes((vector[5:] * 255).round().astype(np.uint8)) == "hé".encode() + bytes(3)
    assert made.names == ["board", "turn", "hint"] and made.space.shape == (11,)


@pytest.mark.parametrize(
    ("mask", "value", "flags"),
    [("legal", [2, 0], [1, 0, 1]), ("legal", [], [0, 0, 0]), ("legal:flags", [0, True, 1], [0, 1, 1])],
)
def test_legal_actions_are_numbers_or_flags(mask: str, value: list[Any], flags: list[int]) -> None:
    read: Any = reader(["turn"], mask=mask).read({"turn": 1, "legal": value})
    assert read["action_mask"].tolist() == flags and read["action_mask"].dtype == np.int8


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        ({}, "field 'board' is missing"),
        ({"board": [1, 2, 3]}, "has 3 numbers, and 2 were declared"),
        ({"board": [1, None]}, "no numbers"),
        ({"board": [[1], [1, 2]]}, "no numbers"),
        ({"board": "12"}, "no numbers"),
        ({"board": [1, 1e300]}, "not finite"),
        ({"board": [1, 2], "legal": [3]}, "not among 0 to 2"),
        ({"board": [1, 2], "legal": [0.5]}, "not among 0 to 2"),
        ({"board": [1, 2], "legal": None}, "no numbers"),
    ],
)
def test_what_was_not_declared_is_refused(observation: dict[str, Any], says: str) -> None:
    with pytest.raises(FieldError, match=says):
        reader(["board:2"], mask="legal").read(observation)


def test_a_mask_needs_choices_and_a_function_needs_a_size() -> None:
    with pytest.raises(OptionError, match="these actions are no choices"):
        reader(["board:2"], mask="legal", choices=None)
    with pytest.raises(OptionError, match="read= needs read_size="):
        FieldReader.of([], [], None, 3, "math:sin", 0)
    with pytest.raises(OptionError, match="math has no 'sinus' to call"):
        FieldReader.of([], [], None, 3, "math:sinus", 2)

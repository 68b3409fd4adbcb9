"""The words in which options describe fields."""

from __future__ import annotations

import math

import pytest

from envs.remote.words import imported_function, named_size, named_value, value_of
from utils.options import OptionError


def test_words_are_read() -> None:
    assert named_size("o", "board:42") == ("board", 42) and named_size("o", "turn") == ("turn", 1)
    assert named_value("o", "a=b=c") == ("a", "b=c")
    assert [value_of(word) for word in ("1", "true", "plain", '"1"', "[1]")] == [1, True, "plain", "1", [1]]
    assert imported_function("o", "math:sin") is math.sin


@pytest.mark.parametrize("text", ["math", ":sin", "math:", "no.such.module:f", "math:pi"])
def test_what_is_no_function_is_one_sentence(text: str) -> None:
    with pytest.raises(OptionError, match=r"^o[:=]"):
        imported_function("o", text)
    for broken in ("board:0", ":3", "board:x"):
        with pytest.raises(OptionError, match="should be name:size"):
            named_size("o", broken)

"""Options: a mistake is one clear sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from utils.options import OptionError, from_keywords, nearest, option, range_problems, shown


class Color(Enum):
    red = "red"
    green = "green"


@dataclass
class Inner:
    depth: int = option(2, "how deep", low=1, high=5)


@dataclass
class Outer:
    rate: float = option(0.1, "a rate", above=0)
    size: int | None = option(None, "a size", low=1)
    color: Color = option(Color.red, "a color")
    names: list[str] = option(["a"], "names")
    weights: list[float] = option([], "weights", low=0)
    on: bool = option(False, "a switch")
    inner: Inner = field(default_factory=Inner)


@dataclass
class Needy:
    needed: int


def refusal(config: Any = Outer, /, **values: Any) -> str:
    with pytest.raises(OptionError) as caught:
        from_keywords(config, "Thing", values)
    text = str(caught.value)
    assert text.startswith("Thing") and "\n" not in text
    return text


def test_good_values_are_taken_and_converted() -> None:
    made = from_keywords(
        Outer,
        "Thing",
        {"rate": 1, "size": 3, "color": "green", "names": ["x", "y"], "on": True, "weights": [0.5]},
    )
    assert made == Outer(1.0, 3, Color.green, ["x", "y"], [0.5], True) and isinstance(made.rate, float)
    assert from_keywords(Outer, "Thing", {"size": None, "color": Color.green}).color is Color.green
    assert from_keywords(Outer, "Thing", {}) == Outer()


def test_a_list_default_is_not_shared() -> None:
    Outer().names.append("b")
    assert Outer().names == ["a"]


def test_mistakes_name_the_option_and_what_would_do() -> None:
    assert "no option 'colour'" in refusal(colour="red") and "Did you mean 'color'?" in refusal(colour="red")
    assert "Did you mean 'green'?" in refusal(color="gren")
    assert "Known: green, red." in refusal(color="xyz")
    assert "should be of type int or NoneType" in refusal(size="3")
    assert "should be of type float" in refusal(rate="fast")
    assert "should be of type int" in refusal(size=True)
    assert "should be of type bool" in refusal(on=1)
    assert "should be of type list" in refusal(names="x")
    assert "rate=0 is out of range: it must be more than 0." in refusal(rate=0.0).replace("0.0", "0")
    assert "size=0 is out of range: it must be at least 1." in refusal(size=0)
    assert "weights=-1.0 is out of range" in refusal(weights=[1.0, -1.0])
    assert "out of range" in refusal(rate=float("nan")) and "out of range" in refusal(rate=float("inf"))
    assert "needs the option 'needed'" in refusal(Needy)


def test_range_problems_look_into_nested_options() -> None:
    assert list(range_problems(Outer())) == []
    assert list(range_problems(Outer(inner=Inner(6), size=0))) == [
        "size=0 is out of range: it must be at least 1.",
        "inner.depth=6 is out of range: it must be at least 1 and at most 5.",
    ]


def test_nearest_ignores_case_and_lists_all_when_nothing_is_near() -> None:
    assert nearest("antdir", ["AntDir", "Wind"]) == " Did you mean 'AntDir'?"
    assert nearest("qqq", ["Wind", "AntDir"]) == " Known: AntDir, Wind."


def test_the_text_of_a_mistake_acts_on_no_terminal() -> None:
    assert str(OptionError("seed=\x1b[2Jx is no number.")) == r"seed=\x1b[2Jx is no number."


def test_nested_values_are_shown_as_they_are_typed() -> None:
    assert shown({"a": {"family": "Wind", "on": True}, "b": [1, 2]}) == "{a:{family:Wind,on:true},b:[1,2]}"


def test_a_list_of_pairs_may_be_given_as_a_mapping() -> None:
    made = from_keywords(Outer, "outer", {"names": {"board": 42, "masked": True}})
    assert made.names == ["board:42", "masked:true"]

"""The parts of a mixture as they are typed: short forms, and one sentence for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from envs.meta.grid.grid_navi import GridNaviConfig, GridVariant
from envs.meta.mixtures.named_parts import checked_parts, family_of_part, named_parts
from utils.options import OptionError


def test_a_list_is_short_for_a_part_of_each_family() -> None:
    parts = checked_parts(named_parts(["GridNavi", "Wind", "GridNavi"]))
    assert [part.name for part in parts] == ["GridNavi", "Wind", "GridNavi_2"]
    assert [part.weight for part in parts] == [1, 1, 1]


def test_a_part_has_the_options_of_its_family() -> None:
    (part,) = checked_parts(
        named_parts({"far": {"family": "GridNavi", "weight": 4, "variant": "hall", "size": 9}})
    )
    assert isinstance(part.config, GridNaviConfig)
    assert (part.weight, part.config.variant, part.config.size) == (4, GridVariant.hall, 9)


def test_the_name_of_a_family_alone_is_a_part_with_its_defaults() -> None:
    assert checked_parts(named_parts({"a": "Wind"})) == checked_parts(named_parts({"a": {"family": "Wind"}}))


WRONG: list[tuple[Any, str]] = [
    ({"a": {"size": 7}}, r"env\.parts\.a has no family: add env\.parts\.a\.family=NAME\."),
    ({"a": {"family": "GridNav"}}, r"env\.parts\.a\.family=GridNav is not known\. Did you mean 'GridNavi'\?"),
    ({"a": {"family": "GridNavi", "sise": 7}}, r"env\.parts\.a has no option 'sise'\. Did you mean 'size'\?"),
    ({"a": {"family": "GridNavi", "size": 1}}, r"env\.parts\.a: size=1 is out of range"),
    ({"a": {"family": "GridNavi", "size": "big"}}, r"env\.parts\.a: size='big' should be of type int"),
    ({"a": {"family": "GridNavi", "variant": "hal"}}, r"Did you mean 'hall'\?"),
    (
        {"a": {"family": "GridNavi", "num_train_tasks": 3}},
        r"common to all parts: write env\.num_train_tasks=3",
    ),
    ({"a": {"family": "GridNavi", "weight": 0}}, r"env\.parts\.a\.weight=0 is out of range"),
    ({"a": {"family": "GridNavi", "weight": float("inf")}}, r"weight=inf is out of range"),
    ({"a": {"family": "GridNavi", "weight": "much"}}, r"env\.parts\.a\.weight=much should be a number"),
    ({"a/b": {"family": "GridNavi"}}, r"env\.parts\.a/b needs another name"),
    (["Mixture"], r"is a mixture itself"),
    ([], r"needs at least one part"),
    ("GridNavi", r"should be a list of families"),
]


@pytest.mark.parametrize(("parts", "says"), WRONG)
def test_a_mistake_is_one_sentence(parts: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        checked_parts(named_parts(parts))


def test_what_a_family_refuses_is_named_with_its_part() -> None:
    (part,) = checked_parts(named_parts({"a": {"family": "GridNavi", "door_every": 3}}))
    with pytest.raises(OptionError, match=r"env\.parts\.a: GridNavi: door_every=3"):
        family_of_part(part)

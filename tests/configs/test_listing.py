"""env=list and its like show every choice, environments on their shelves."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.compose import Composer
from configs.listing import list_text
from configs.schema import GROUPS
from envs.base import Shelf
from envs.meta import FAMILIES
from utils.options import OptionError


def listed(composer: Composer, group: str) -> str:
    return list_text(group, composer.choices(group), composer.family)


@pytest.mark.parametrize("group", GROUPS)
def test_a_list_has_a_line_for_each_choice_that_says_something(composer: Composer, group: str) -> None:
    lines = [line for line in listed(composer, group).splitlines() if "=" in line.partition(" ")[0]]
    assert sorted(line.split()[0] for line in lines) == [
        f"{group}={name}" for name in composer.choices(group)
    ]
    assert all(len(line.split()) > 3 for line in lines)


def test_environments_stand_on_the_shelves_of_their_families(composer: Composer) -> None:
    shelves = {
        text.splitlines()[0]: [line.split()[0] for line in text.splitlines()[1:]]
        for text in listed(composer, "env").split("\n\n")
    }
    assert list(shelves) == [group.value for group in Shelf if group.value in shelves]
    for name, family in FAMILIES.items():
        assert f"env={name}" in shelves[family.shelf.value]
    others = set(composer.choices("env")) - set(FAMILIES)
    assert {f"env={name}" for name in others if composer.family(name) == "Gymnasium"} <= set(
        shelves[Shelf.third_party.value]
    )


def test_settings_of_ones_own_stand_beside_their_family_and_broken_ones_spoil_no_list(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "Breeze.yaml").write_text(
        "# @package _global_\n# A light wind.\ndefaults:\n  - /schema/env@env: Wind\n"
    )
    (tmp_path / "env" / "Broken.yaml").write_text(
        "# @package _global_\n# No family.\ndefaults:\n  - /schema/env@env: Wnd\n"
    )
    with Composer(str(tmp_path)) as composer:
        text = listed(composer, "env")
    toys, others = (
        next(part for part in text.split("\n\n") if part.startswith(group.value))
        for group in (Shelf.toy, Shelf.third_party)
    )
    assert "env=Breeze" in toys and "env=Broken" in others


@pytest.mark.parametrize("typed", ["AntDirr", "qqq"])
def test_a_wrong_environment_gives_the_nearest_and_the_list(composer: Composer, typed: str) -> None:
    with pytest.raises(OptionError) as caught:
        composer.config(composer.parse([f"env={typed}"]))
    first, _, rest = str(caught.value).partition("\n\n")
    assert first == f"env={typed} is not known." + (" Did you mean 'AntDir'?" if typed == "AntDirr" else "")
    assert rest == listed(composer, "env")

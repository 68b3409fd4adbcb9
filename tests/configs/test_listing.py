"""--help and env=list show everything there is."""

from __future__ import annotations

import pytest

from configs.compose import Composer
from configs.listing import help_text, list_text
from configs.schema import GROUPS
from configs.values import option_names


@pytest.mark.parametrize("group", GROUPS)
def test_a_list_has_a_line_for_each_choice_that_says_something(composer: Composer, group: str) -> None:
    lines = list_text(composer, group).splitlines()
    assert [line.split()[0] for line in lines] == [f"{group}={name}" for name in composer.choices(group)]
    assert all(len(line.split()) > 3 for line in lines)


def test_help_shows_every_option_with_its_value(composer: Composer) -> None:
    text = help_text(composer, composer.config(composer.parse(["env=AntDir", "seed=41"])))
    options = [line.split("=")[0].strip() for line in text.partition("Options,")[2].splitlines() if "=" in line]
    names = set(option_names(composer.dict_config(composer.parse(["env=AntDir"]))))
    assert names - set(options) == {"env.family", "agent.arch", "memory.name", "algorithm.name", "backend.name"}
    assert set(options) <= names
    assert "seed=41 " in text and "env.variant=legacy" in text


def test_help_shows_every_choice(composer: Composer) -> None:
    text = help_text(composer, composer.config([]))
    assert not [name for group in GROUPS for name in composer.choices(group) if name not in text]

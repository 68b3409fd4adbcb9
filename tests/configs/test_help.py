"""--help and env=list show everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configs.compose import Composer
from configs.help import help_text, list_text
from configs.schema import GROUPS, choice_description, first_sentence
from configs.values import option_names
from envs.base import Shelf
from envs.meta import FAMILIES
from utils.options import OptionError


@pytest.mark.parametrize("group", GROUPS)
def test_a_list_has_a_line_for_each_choice_that_says_something(composer: Composer, group: str) -> None:
    lines = [line for line in list_text(composer, group).splitlines() if "=" in line.partition(" ")[0]]
    assert sorted(line.split()[0] for line in lines) == [
        f"{group}={name}" for name in composer.choices(group)
    ]
    assert all(len(line.split()) > 3 for line in lines)


def test_environments_stand_on_the_shelves_of_their_families(composer: Composer) -> None:
    shelves = {
        text.splitlines()[0]: [line.split()[0] for line in text.splitlines()[1:]]
        for text in list_text(composer, "env").split("\n\n")
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
        text = list_text(composer, "env")
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
    assert rest == list_text(composer, "env")


def test_help_shows_every_option_with_its_value(composer: Composer) -> None:
    text = help_text(composer, composer.parse(["env=AntDir", "seed=41"]))
    options = [
        line.split("=")[0].strip() for line in text.partition("Options:")[2].splitlines() if "=" in line
    ]
    names = set(option_names(composer.dict_config(composer.parse(["env=AntDir"]))))
    assert names - set(options) == {
        "env.family",
        "agent.arch",
        "memory.name",
        "algorithm.name",
        "backend.name",
    }
    assert set(options) <= names
    assert "seed=41 " in text and "env.variant=legacy" in text


def test_help_shows_beside_each_value_the_layer_that_set_it(composer: Composer) -> None:
    """`agent.hidden` of AntDir is set by its class, its file and its recipe with PPO, which wins."""
    text = help_text(
        composer, composer.parse(["env=AntDir", "memory.hidden_size=64", "train={buffer_size: 9}"])
    )
    shown = re.findall(r"^  ([\w.]+)=\S+ +(\w+(?: line)?)  ", text, re.MULTILINE)
    layers = dict(shown)
    expected = {
        "agent.hidden": "recipe",
        "agent.activation": "algorithm",
        "agent.arch": None,
        "agent.encoders": "default",
        "env.max_rollouts_per_task": "env",
        "memory.hidden_size": "command line",
        "train.buffer_size": "command line",
        "train.updates_per_step": "default",
        "seed": "default",
    }
    for name, layer in expected.items():
        assert layers.get(name) == layer, name


def test_an_experiment_and_a_choice_of_ones_own_are_layers_too(composer: Composer) -> None:
    layers = composer.layers(composer.parse(["experiment=semi_circle", "env=Wind", "seed=3"]))
    assert layers["train.num_init_rollouts_pool"] == "experiment"
    assert layers["seed"] == "command line"
    assert not [name for name in layers if name.startswith("hydra")]


def test_a_description_is_a_whole_sentence_though_it_is_wrapped(composer: Composer) -> None:
    assert first_sentence("One that is\nwrapped (k = 2). Another.\n\nMore.") == "One that is wrapped (k = 2)."
    for group in GROUPS:
        for name in composer.choices(group):
            assert choice_description(group, name).endswith((".", ":", ")")), f"{group}={name}"


def test_help_shows_every_choice(composer: Composer) -> None:
    text = help_text(composer, [])
    assert not [name for group in GROUPS for name in composer.choices(group) if name not in text]

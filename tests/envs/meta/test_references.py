"""References: which known scores a family reports under which options, tested over the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import pytest

from envs.base import OPTIONS_OF_REGIME, EnvConfig, Reference, TaskFamily
from envs.meta import FAMILIES
from envs.meta.locomotion.body_params import BodyParams
from envs.meta.make_env import make_family
from envs.meta.toy.wind import Wind, WindConfig
from utils.options import OptionError, option

WITH_REFERENCES = [name for name, kind in FAMILIES.items() if kind.references]


def other_values(name: str, value: Any) -> Iterator[Any]:
    """Values of an option that differ from this one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        yield from (member for member in type(value) if member is not value)
    elif isinstance(value, int):
        # A shorter episode always matters; a longer one does not where the game ends by itself.
        yield value - 1 if name == "max_episode_steps" else value + 1
    elif isinstance(value, float):
        yield from (0.9 * value, 1.1 * value) if value else (0.5,)
    elif isinstance(value, list):
        yield value[:-1]
        if all(isinstance(one, float) for one in value):
            yield [0.9 * one for one in value]
    elif isinstance(value, str):
        yield f"other-{value}"
    else:
        assert value is None
        yield 2


def changed_configs(kind: type[TaskFamily], reference: Reference) -> Iterator[tuple[str, EnvConfig]]:
    """The options of a reference with one of them changed, and the name of that option."""
    measured = kind.Config(**reference.options).resolved()
    for item in fields(measured):
        if item.name == "family":
            continue
        for value in other_values(item.name, getattr(measured, item.name)):
            yield item.name, kind.Config(**reference.options | {item.name: value})


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_reference_holds_under_its_own_options(name: str):
    kind = FAMILIES[name]
    for reference in kind.references:
        assert kind(kind.Config(**reference.options)).spec.reference is reference


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_changing_any_option_that_matters_drops_or_changes_the_reference(name: str):
    kind, checked = FAMILIES[name], set[str]()
    for reference in kind.references:
        for changed, config in changed_configs(kind, reference):
            try:
                found = kind(config).spec.reference
            except OptionError:
                continue  # an option of another variant
            without_effect = changed in (*OPTIONS_OF_REGIME, *kind.options_without_effect)
            assert (found is reference) == without_effect, changed
            checked.add(changed)
    # AntGoal takes a level with one variant only, which has no reference.
    missed = {item.name for item in fields(kind.Config)} - {"family"} - checked
    assert missed <= {"level"}


@pytest.mark.parametrize("name", ["TMazePassive", "TMazeActive", "KeyToDoor", "PassiveVisualMatch"])
def test_a_time_limit_beyond_the_end_of_the_game_keeps_the_reference(name: str):
    kind = FAMILIES[name]
    default = kind(kind.Config())
    longer = kind(kind.Config(max_episode_steps=default.config.max_episode_steps + 1))
    assert longer.spec.reference is default.spec.reference is not None


def test_the_order_of_body_params_is_no_other_setting():
    family = make_family("BodyParams", parameters=["gravity", "mass", "damping"])
    assert family.spec.reference is BodyParams.references[0]


@dataclass
class GustyConfig(WindConfig):
    gust: float = option(0.0, "an option that was added later", low=0)


class Gusty(Wind):
    Config = GustyConfig


def test_an_option_that_was_added_later_and_forgotten_drops_the_reference():
    assert Gusty(GustyConfig()).spec.reference is Wind.references[0]
    assert Gusty(GustyConfig(gust=0.1)).spec.reference is None


def test_the_default_settings_have_a_reference_wherever_scores_were_measured():
    without = {name for name, kind in FAMILIES.items() if kind(kind.Config()).spec.reference is None}
    assert without == {"Gymnasium", "CybORG", "Mixture", "OpenEnv", "PettingZoo"}

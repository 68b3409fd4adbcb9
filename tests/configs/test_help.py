"""--help and env=list show everything there is."""

from __future__ import annotations

import re

from configs.compose import Composer
from configs.help import help_text
from configs.schema import GROUPS, choice_description, first_sentence
from configs.values import option_names


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
        "collector.name",
        "curriculum.name",
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

"""What can be chosen is what is registered, composes, and is listed by env=list and its like."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf, open_dict

from configs import schema
from configs.compose import Composer, load
from configs.schema import FOLDER, GROUPS, NAME_FIELDS, choice_description, list_text, schemas
from envs.backends import BACKENDS
from envs.base import Shelf
from envs.meta import FAMILIES
from envs.remote.serving import end_served
from policies.agents.base import Arch
from policies.algorithms import ALGORITHMS
from policies.collection.remote import POOLS
from policies.curriculum import CURRICULA
from policies.memory import MEMORIES
from policies.run.config import Config
from utils.options import OptionError

EXPERIMENTS = sorted(file.stem for file in (FOLDER / "experiment").glob("*.yaml"))
# An algorithm and actions that it cannot learn compose too; they are refused by a check of the whole.
COMBINATIONS = [
    *itertools.product(FAMILIES, ["Memory"], ["GRU"], ALGORITHMS),
    *itertools.product(["PointRobot"], [arch.name for arch in Arch], MEMORIES, ALGORITHMS),
]


def test_every_group_offers_what_its_registry_holds(composer: Composer) -> None:
    registries = {
        "env": FAMILIES,
        "agent": Arch.__members__,
        "memory": MEMORIES,
        "algorithm": ALGORITHMS,
        "backend": {"auto", *BACKENDS},
        "curriculum": CURRICULA,
        "collector": {"local", *POOLS},
    }
    files = {group: {file.stem for file in (FOLDER / group).glob("*.yaml")} for group in registries}
    offered = {group: set(composer.choices(group)) for group in registries}
    assert offered == {group: set(names) | files[group] for group, names in registries.items()}
    assert not [
        group for group in registries if group != "env" and not files[group] <= set(registries[group])
    ]


@pytest.mark.parametrize("words", COMBINATIONS, ids="-".join)
def test_every_combination_of_choices_composes_to_the_classes_own_dataclasses(
    composer: Composer, words: tuple[str, str, str, str]
) -> None:
    env, agent, memory, algorithm = words
    composed = composer.dict_config(
        composer.parse([f"env={env}", f"agent={agent}", f"memory={memory}", f"algorithm={algorithm}"])
    )
    # Hydra's own section is no part of our config, and some of its values are known in a run only.
    with open_dict(composed):
        del composed["hydra"]
    config = OmegaConf.to_object(composed)
    assert type(config) is Config
    assert (type(config.env), type(config.memory), type(config.algorithm)) == (
        FAMILIES[env].Config,
        MEMORIES[memory].Config,
        ALGORITHMS[algorithm].Config,
    )
    assert (config.env.family, config.agent.arch.name, config.memory.name, config.algorithm.name) == words


@pytest.mark.parametrize("name", ["auto", *BACKENDS])
def test_every_backend_composes(composer: Composer, name: str) -> None:
    assert composer.config(composer.parse([f"backend={name}"])).backend.name == name


# Experiments whose environments need a partner's package, which is asked for when they are checked.
NEEDS = {"connect4": "uvicorn", "simple_push": "mpe2"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.peers] * (name in NEEDS)) for name in EXPERIMENTS]
)
def test_every_experiment_composes_and_changes_something(composer: Composer, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    try:
        assert composer.config(composer.parse([f"experiment={name}"])) != composer.config([])
    finally:
        end_served()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("recipe/**/*.yaml")), ids=lambda file: file.stem)
def test_every_recipe_is_found_by_its_name_and_sets_what_it_says(composer: Composer, file: Path) -> None:
    # A recipe of an agent comes after that of its environment and algorithm; Markov has none.
    if file.parent.name == "by_memory":
        algorithm, memory = file.stem.split("_")
        words = ["env=Gymnasium", f"algorithm={algorithm}", f"memory={memory}"]
    else:
        env, algorithm, agent = [*file.stem.split("_", 2), "Markov"][:3]
        words = [f"env={env}", f"algorithm={algorithm}", f"agent={agent}"]
    composed = OmegaConf.to_container(composer.dict_config(composer.parse(words)))
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    values.pop("defaults", None)  # the recipe that it continues
    assert _within(values, composed)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("recipe/*.yaml")), ids=lambda file: file.stem)
def test_every_recipe_suits_every_agent_and_memory(composer: Composer, file: Path) -> None:
    """DQN acts by its critic, so it has no agent whose critic alone has a memory."""
    env, algorithm = file.stem.split("_")
    pairs = [("Memory", "LSTM"), ("Memory", "Transformer"), ("Memory_Markov", "Transformer")]
    for agent, memory in pairs[: 2 if algorithm == "DQN" else 3]:
        words = [f"env={env}", f"algorithm={algorithm}", f"agent={agent}", f"memory={memory}"]
        composed, kind = composer.dict_config(composer.parse(words)), ALGORITHMS[algorithm]
        learns: Any = OmegaConf.to_object(composed.algorithm)
        acts: Any = OmegaConf.to_object(composed.agent)
        assert [*kind.problems(learns, acts)] == [], words
        assert [*kind.problems_of_memory(learns, acts, MEMORIES[memory], memory)] == [], words


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_transformer_reads_whole_trials_beside_any_recipe(algorithm: str) -> None:
    """The recipes of agents with a memory take windows, which start from states that it has not."""
    discrete = algorithm in ("DQN", "DiscreteSAC")
    words = [
        "env=Gymnasium",
        f"env.id={'CartPole-v1' if discrete else 'Pendulum-v1'}",
        f"algorithm={algorithm}",
    ]
    windows, config = load(words), load([*words, "memory=Transformer"])
    assert windows.algorithm.window > 0 == config.algorithm.window  # pyright: ignore[reportAttributeAccessIssue]


def _within(values: Any, composed: Any) -> bool:
    """Whether all of these values stand in what was composed."""
    if isinstance(values, dict):
        return all(name in composed and _within(value, composed[name]) for name, value in values.items())
    if isinstance(composed, float):
        return float(values) == composed  # YAML reads 1e-3 as text
    return values == getattr(composed, "name", composed)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("env/*.yaml")), ids=lambda file: file.stem)
def test_a_familys_file_sets_only_what_every_algorithm_and_memory_has(file: Path) -> None:
    common = {group: {item.name for item in dataclasses.fields(base)} for group, base in _bases().items()}
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    for group, names in common.items():
        assert set(values.get(group, {})) <= names


def _bases() -> dict[str, type]:
    from policies.algorithms.base import AlgorithmConfig
    from policies.memory.base import MemoryConfig

    return {"algorithm": AlgorithmConfig, "memory": MemoryConfig}


def test_every_option_has_a_line_of_help() -> None:
    nodes = [schema.root(), *(node for choices in schemas().values() for node in choices.values())]
    sections = {item.name for item in dataclasses.fields(Config) if not item.metadata.get("help")}
    assert sections == {*NAME_FIELDS, "train", "evaluation", "learner", "wandb"}
    without_help = sections | set(NAME_FIELDS.values())
    missing = [
        (type(node), item.name)
        for node in nodes
        for item in dataclasses.fields(node)
        if not item.metadata.get("help")
    ]
    assert not [(owner, name) for owner, name in missing if name not in without_help]


def test_every_choice_has_a_line_of_description(composer: Composer) -> None:
    assert not [
        f"{group}={name}"
        for group in GROUPS
        for name in composer.choices(group)
        if not choice_description(group, name)
    ]


def test_a_choice_needs_no_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fresh(FAMILIES["PointRobot"]):
        """Registered, and nothing else."""

    monkeypatch.setitem(FAMILIES, "Fresh", Fresh)
    # Hydra keeps what is registered for the whole process: other tests must not see this choice.
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))
    with Composer() as composer:
        assert (
            composer.config(composer.parse(["env=Fresh", "env.max_episode_steps=7"])).env.max_episode_steps
            == 7
        )
        assert choice_description("env", "Fresh") == "Registered, and nothing else."


# -- lists of choices --------------------------------------------------------------------------------------


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

"""What can be chosen: the registries become Hydra's groups, their dataclasses its schemas."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from envs.backends import BACKENDS
from envs.backends.base import BackendConfig
from envs.base import Shelf
from envs.meta import FAMILIES
from policies.agents.base import AgentConfig, Arch
from policies.algorithms import ALGORITHMS
from policies.collection.remote import POOLS
from policies.curriculum import CURRICULA
from policies.memory import MEMORIES
from policies.run.config import CollectorConfig, Config, EvaluationConfig, LearnerConfig, TrainConfig
from utils.services.wandb_run import WandbConfig

FOLDER = Path(__file__).parent

EXPERIMENT = "experiment"

# Each group, and the option of its config that holds the name of the choice.
NAME_FIELDS = {
    "env": "family",
    "agent": "arch",
    "memory": "name",
    "algorithm": "name",
    "backend": "name",
    "curriculum": "name",
    "collector": "name",
}

GROUPS = (*NAME_FIELDS, EXPERIMENT)


def schemas() -> dict[str, dict[str, Any]]:
    """The config, with its defaults, of every choice of every group."""
    return {
        "env": {name: family.Config(family=name) for name, family in FAMILIES.items()},
        "agent": {arch.name: AgentConfig(arch=arch) for arch in Arch},
        "memory": {name: memory.Config(name=name) for name, memory in MEMORIES.items()},
        "algorithm": {name: algorithm.Config(name=name) for name, algorithm in ALGORITHMS.items()},
        "backend": {name: BackendConfig(name=name) for name in ("auto", *BACKENDS)},
        "curriculum": {name: curriculum.Config(name=name) for name, curriculum in CURRICULA.items()},
        "collector": {name: CollectorConfig(name=name) for name in ("local", *POOLS)},
    }


def root(**choices: Any) -> Config:
    """The schema of a whole run; a group without a choice is still missing."""
    chosen = {group: choices.get(group, MISSING) for group in NAME_FIELDS}
    return Config(
        **chosen,
        train=TrainConfig(),
        evaluation=EvaluationConfig(),
        learner=LearnerConfig(),
        wandb=WandbConfig(),
    )


def register() -> None:
    """Give Hydra all schemas, under which YAML files are checked."""
    # `schema` is the first entry of config.yaml: whatever follows must fit into its types.
    store = ConfigStore.instance()
    store.store(name="schema", node=root())
    for group, nodes in schemas().items():
        for name, node in nodes.items():
            store.store(group=f"schema/{group}", name=name, node=node, package=group)
            # A choice without a YAML file of its own is its schema alone.
            if not (FOLDER / group / f"{name}.yaml").exists():
                store.store(group=group, name=name, node=node)


def list_text(group: str, names: Sequence[str], family_of: Callable[[str], str]) -> str:
    """The answer to `env=list`: the choices of a group, environments on the shelves of their families."""
    # All descriptions begin in one column.
    width = max((len(name) for name in names), default=0)
    lines = {name: f"{group}={name:<{width}}  {choice_description(group, name)}".rstrip() for name in names}
    if group != "env":
        return "\n".join(lines.values())

    # A choice of one's own stands on the shelf of the family that its file chooses.
    shelves = {name: getattr(FAMILIES.get(family_of(name)), "shelf", Shelf.third_party) for name in names}
    return "\n\n".join(
        "\n".join([shelf.value, *(lines[name] for name in names if shelves[name] is shelf)])
        for shelf in Shelf
        if shelf in shelves.values()
    )


def choice_description(group: str, name: str) -> str:
    """One sentence about a choice, from the docstring of its class or the first comment of its YAML file.

    A family is described by its docstring first, any other choice by its comment first.
    """
    classes: dict[str, Any] = {
        "env": FAMILIES,
        "memory": MEMORIES,
        "algorithm": ALGORITHMS,
        "backend": BACKENDS,
        "curriculum": CURRICULA,
        "collector": POOLS,
    }
    # A class or its file describes the choice.
    docstring = first_sentence(inspect.getdoc(classes.get(group, {}).get(name)) or "")
    file = FOLDER / group / f"{name}.yaml"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    opening = itertools.takewhile(lambda line: line.startswith("#"), lines)
    comment = first_sentence("\n".join(line.lstrip("# ") for line in opening if "@package" not in line))
    return docstring or comment if group == "env" else comment or docstring


def first_sentence(text: str) -> str:
    """The first sentence of a text, which may be wrapped over several lines."""
    opening = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", opening, maxsplit=1)[0]

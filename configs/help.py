"""The texts of --help and of env=list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.core.override_parser.types import Override

from configs.compose import Composer
from configs.schema import FOLDER, GROUPS, NAME_FIELDS
from configs.values import shown
from utils.options import range_text

USAGE = """Retrial trains agents that adapt within a trial: k episodes on one unknown task.

  python main.py                                    a memory agent on a small task, in minutes
  python main.py env=AntDir num_parallel_workers=6  another environment, stepped by six worker processes
  python main.py -m seed=0,1,2                      one run after the other for each value
  python main.py resume=RUN_DIR                     go on from the last checkpoint, bit for bit
  python main.py evaluate=RUN_DIR                   measure a run by its last checkpoint
  python main.py report=SWEEP_DIR                   compare runs that differ in settings and seeds
  python main.py env=list                           what there is to choose from; also agent=list, ...
  python main.py env=AntDir --help                  this page with the options of another choice
  python main.py --cfg job                          the composed config as YAML (--hydra-help: Hydra's flags)
"""

LAYERS = (
    "Options: value in this composition, layer that set it (each wins over those before it: default, agent, "
    "memory, algorithm, backend, env, recipe, experiment, command line), meaning"
)


def recipes_text() -> str:
    """Recipes cannot be chosen: the names of those that there are, and which runs take them."""
    names = ", ".join(sorted(file.stem for file in (FOLDER / "recipe").glob("*.yaml")))
    return (
        f"A recipe is not chosen: a run takes the one named <env>_<algorithm>, where there is one: {names}."
    )


def help_text(composer: Composer, overrides: Sequence[Override]) -> str:
    """How to use it, every choice, and every option of this config: value, layer that set it, and help."""
    config, layers = composer.config(overrides), composer.layers(overrides)
    choices = "\n".join(f"  {group:<11} {', '.join(composer.choices(group))}" for group in GROUPS)

    # Values of up to 44 characters stand in one column; the few longer ones push their help to the right.
    rows = list(_options(config))
    width = min(max(len(f"{name}={value}") for name, value, _ in rows), 44)
    options = "\n".join(
        f"  {f'{name}={value}':<{width}}  {layers.get(name, 'default'):<12}  {meaning}"
        for name, value, meaning in rows
    )
    return f"{USAGE}\nChoices\n{choices}\n\n{LAYERS}\n{options}"


def _options(config: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, value, help with its range) of every option of a config."""
    nested = [item for item in fields(config) if is_dataclass(getattr(config, item.name))]
    chosen = {f"{group}.{field}" for group, field in NAME_FIELDS.items()}  # these come with the choice
    for item in fields(config):
        if item not in nested and f"{prefix}{item.name}" not in chosen:
            limits, meaning = range_text(item), item.metadata.get("help", "")
            if limits:
                meaning += f" ({limits})"
            yield f"{prefix}{item.name}", shown(getattr(config, item.name)), meaning
    for item in nested:
        yield from _options(getattr(config, item.name), f"{prefix}{item.name}.")

"""What --help and env=list say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from configs.schema import GROUPS, NAME_FIELDS, describe
from configs.values import shown
from envs.base import Shelf
from envs.meta import FAMILIES
from policies.run.config import Config
from utils.options import range_text

if TYPE_CHECKING:
    from configs.compose import Composer

USAGE = """Retrial trains agents that adapt within a trial: k episodes on one unknown task.

  python main.py                                                   a memory agent on a small task, in minutes
  python main.py env=AntDir num_parallel_workers=6                 another environment, stepped by six worker processes
  python main.py -m seed=0,1,2                                     one run after the other for each value
  python main.py resume=RUN_DIR                                    go on where the last checkpoint was written, bit for bit
  python main.py evaluate=RUN_DIR evaluation.episodes_per_trial=4  measure a run, here with more episodes than it was trained for
  python main.py env=list                                          what there is to choose from; also agent=list, ...
  python main.py env=AntDir --help                                 this page with the options of another choice
  python main.py --cfg job                                         the composed config as YAML (--hydra-help: Hydra's own flags)
"""


def list_text(composer: Composer, group: str) -> str:
    """The choices of a group, one line each; environments on the shelves of their families."""
    names = composer.choices(group)
    width = max((len(name) for name in names), default=0)
    lines = {name: f"{group}={name:<{width}}  {describe(group, name)}".rstrip() for name in names}
    if group != "env":
        return "\n".join(lines.values())
    shelves = {
        name: getattr(FAMILIES.get(composer.family(name)), "shelf", Shelf.third_party) for name in names
    }
    return "\n\n".join(
        "\n".join([shelf.value, *(lines[name] for name in names if shelves[name] is shelf)])
        for shelf in Shelf
        if shelf in shelves.values()
    )


def help_text(composer: Composer, config: Config) -> str:
    """How to use it, every choice, and every option of this config with its value and its help."""
    choices = "\n".join(f"  {group:<11} {', '.join(composer.choices(group))}" for group in GROUPS)
    rows = list(_options(config))
    width = min(max(len(left) for left, _ in rows), 44)
    options = "\n".join(f"  {left:<{width}}  {right}" for left, right in rows)
    return f"{USAGE}\nChoices\n{choices}\n\nOptions, with their values in this composition\n{options}"


def _options(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    nested = [item for item in fields(config) if is_dataclass(getattr(config, item.name))]
    chosen = {f"{group}.{field}" for group, field in NAME_FIELDS.items()}  # these come with the choice
    for item in fields(config):
        if item not in nested and f"{prefix}{item.name}" not in chosen:
            limits = range_text(item)
            yield (
                f"{prefix}{item.name}={shown(getattr(config, item.name))}",
                f"{item.metadata.get('help', '')}{f' ({limits})' if limits else ''}",
            )
    for item in nested:
        yield from _options(getattr(config, item.name), f"{prefix}{item.name}.")

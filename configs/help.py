"""The texts of --help, and the note on what a choice brought with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from configs.compose import Composer
from configs.schema import FOLDER, GROUPS, NAME_FIELDS
from configs.values import option_names
from policies.run.config import Config
from policies.run.sizes import needs_of
from utils.options import range_text, shown, unread_options

# Choices that recipes know, so that one of them can bring other settings with it.
SILENT_CHOICES = ("algorithm", "agent", "memory")
# So many of those are shown, which is two lines.
MOST_CHANGED = 5
_NOWHERE = object()

USAGE = """Retrial trains agents that adapt within a trial: k episodes on one unknown task.

  python main.py                                    a memory agent on a small task, in minutes
  python main.py env=AntDir num_parallel_workers=6  another environment, stepped by six worker processes
  python main.py -m seed=0,1,2                      one run after the other for each value
  python main.py resume=RUN_DIR                     go on from the last checkpoint, bit for bit
  python main.py evaluate=RUN_DIR                   measure a run by its last checkpoint
  python main.py report=SWEEP_DIR                   compare runs that differ in settings and seeds
  python main.py export=RUN_DIR export.to=trials.npz       the trials of a run as a dataset (docs/export.md)
  python main.py search=FOLDER train.replay_ratio=64,256   find better settings (docs/search.md)
  python main.py env=list                           what there is to choose from; also agent=list, ...
  python main.py env=AntDir --help                  this page with the options of another choice
  python main.py --cfg job                          the composed config as YAML (--hydra-help: Hydra's flags)
"""

LAYERS = (
    "Options: value in this composition, layer that set it (each wins over those before it: default, agent, "
    "memory, algorithm, backend, curriculum, env, recipe, experiment, command line), meaning"
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


def also_changed(composer: Composer, config: Config, overrides: Sequence[Override]) -> list[str]:
    """A sentence on the settings that a choice brought with it, beside those of its own section.

    Somebody who compares two algorithms would not see that their recipes differ in more. What is compared is
    the same environment, and experiment, without the choice.
    """
    chosen = [override for override in overrides if override.key_or_group in SILENT_CHOICES]
    if not chosen:
        return []
    typed = {override.key_or_group for override in overrides}
    sections = tuple(f"{override.key_or_group}." for override in chosen)
    unread = [name for name, _ in unread_options(config, config, needs_of(config))]
    now = composer.dict_config(overrides)
    before = composer.dict_config([override for override in overrides if _is_kept(override)])
    found: list[str] = []
    for name in option_names(now):
        parts = [name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)]
        if name.startswith(sections) or not {*parts}.isdisjoint([*typed, *unread]):
            continue
        value, default = (OmegaConf.select(one, name, default=_NOWHERE) for one in (now, before))
        if default is not _NOWHERE and value != default:
            found.append(f"{name}={_as_typed(value)} ({_as_typed(default)})")
    # How long is what a comparison hangs on most.
    found.sort(key=lambda one: not one.startswith("train."))
    if not found:
        return []
    more = f" and {len(found) - MOST_CHANGED} more" if len(found) > MOST_CHANGED else ""
    words = " ".join(override.input_line or "" for override in chosen)
    return [f"With {words} also changed: {', '.join(found[:MOST_CHANGED])}{more}."]


def _is_kept(override: Override) -> bool:
    """Whether an override chooses an environment or an experiment."""
    return override.key_or_group in GROUPS and override.key_or_group not in SILENT_CHOICES


def _as_typed(value: Any) -> str:
    """The value of an option of a composed config, whose lists are OmegaConf's."""
    if OmegaConf.is_list(value):
        value = OmegaConf.to_object(value)
    return shown(value)

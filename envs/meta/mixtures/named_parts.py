"""The parts of a mixture as options: under a name of its own, each has a family and the options of that."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from envs.base import EnvConfig, TaskFamily
from utils.options import OptionError, from_keywords, nearest

# A name becomes a part of the names of metrics.
_NAME = re.compile(r"[A-Za-z]\w*")
# What all parts have in common: options of the mixture, not of a part.
_COMMON = ("max_rollouts_per_task", "num_train_tasks", "num_eval_tasks", "oracle")
# What a mixture without any part stands for.
EXAMPLE = {"easy": {"family": "GridNavi"}, "hard": {"family": "GridNavi", "size": 7}}


@dataclass(frozen=True)
class MixturePart:
    """One part of a mixture."""

    name: str
    weight: float
    config: EnvConfig


def named_parts(parts: Any) -> dict[str, dict[str, Any]]:
    """The options of each part by its name; a list of families is short for one part of each.

    The same family may stand in a list several times: its parts are then `Wind`, `Wind_2` and so on.
    """
    if parts is None:
        return {name: dict(options) for name, options in EXAMPLE.items()}
    if isinstance(parts, (list, tuple)):
        named_list: dict[str, dict[str, Any]] = {}
        for position, family in enumerate(parts):
            before = list(parts[:position]).count(family)
            named_list[f"{family}_{before + 1}" if before else str(family)] = {"family": family}
        return named_list
    if not isinstance(parts, dict):
        raise OptionError(
            f"env.parts={parts} should be a list of families, such as [GridNavi,Wind], or have options by "
            "the name of each part: env.parts.NAME.family=GridNavi."
        )
    # A name alone is short for a part with the defaults of its family.
    return {
        str(name): dict(options) if isinstance(options, dict) else {"family": options}
        for name, options in parts.items()
    }


def checked_parts(parts: dict[str, dict[str, Any]]) -> list[MixturePart]:
    """The parts with the configs of their families, checked as those of a whole environment are."""
    if not parts:
        raise OptionError("A mixture needs at least one part: env.parts.NAME.family=GridNavi.")
    return [_checked(name, options) for name, options in parts.items()]


def _checked(name: str, options: dict[str, Any]) -> MixturePart:
    owner = f"env.parts.{name}"
    if not _NAME.fullmatch(name):
        raise OptionError(f"{owner} needs another name, of letters, digits and '_' alone.")
    if options.get("family") is None:
        raise OptionError(f"{owner} has no family: add {owner}.family=NAME.")

    own = {key: value for key, value in options.items() if key not in ("family", "weight")}
    config = _kind(owner, str(options["family"])).Config
    for key in own:
        if key in _COMMON:
            raise OptionError(f"{owner}.{key} is common to all parts: write env.{key}={own[key]}.")
        if key not in {item.name for item in fields(config)}:
            known = {item.name for item in fields(config)} - {*_COMMON} | {"weight"}
            raise OptionError(f"{owner} has no option {key!r}.{nearest(key, known)}")
    return MixturePart(name, _weight(owner, options.get("weight", 1)), from_keywords(config, owner, own))


def _weight(owner: str, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise OptionError(f"{owner}.weight={weight} should be a number.")
    if not 0 < weight < math.inf:
        raise OptionError(f"{owner}.weight={weight} is out of range: it must be more than 0 and finite.")
    return float(weight)


def _kind(owner: str, family: str) -> type[TaskFamily]:
    """The registered family of a part."""
    from envs.meta import FAMILIES  # the registry imports this module

    if family not in FAMILIES:
        raise OptionError(f"{owner}.family={family} is not known.{nearest(family, FAMILIES)}")
    kind = FAMILIES[family]
    if "parts" in {item.name for item in fields(kind.Config)}:
        raise OptionError(f"{owner}.family={family} is a mixture itself: give its parts here, one by one.")
    return kind


def lacking(parts: list[MixturePart]) -> str | None:
    """What a part needs to be played and is not there, as a sentence; None: nothing."""
    from envs.meta.third_party.installed import missing

    for part in parts:
        owner = f"env.parts.{part.name}"
        if needed := missing(_kind(owner, part.config.family), part.config):
            return f"{owner}: {needed}"
    return None


def family_of_part(part: MixturePart) -> TaskFamily:
    """The family of a part; what it refuses is named with the part.

    One that is declared by its options alone is also built where it cannot be played (`lacking`).
    """
    owner = f"env.parts.{part.name}"
    kind = _kind(owner, part.config.family)
    if not kind.is_declared and (needed := lacking([part])):
        raise OptionError(needed)
    with of_part(part.name):
        return kind(part.config)


@contextmanager
def of_part(name: str) -> Iterator[None]:
    """Entered while a part is asked: what it refuses is named with the part."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"env.parts.{name}: {error}") from error

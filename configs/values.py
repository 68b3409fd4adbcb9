"""One override into a typed config: the option must exist, and the value be of its type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import (
    AnyNode,
    BooleanNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    ListConfig,
    Node,
    OmegaConf,
)
from omegaconf.errors import OmegaConfBaseException

from configs.hydra_private import accepts_null, is_missing, node_of
from configs.spellings import answer
from utils.options import OptionError, as_pairs, nearest, shown


def option_names(config: DictConfig, prefix: str = "") -> list[str]:
    """The dotted names of all options; Hydra's own, which a composed config may hold too, are left out."""
    names: list[str] = []
    for key in config:
        node, name = node_of(config, key), f"{prefix}{key}"
        if name == "hydra":
            continue
        if isinstance(node, DictConfig) and not is_missing(node):
            names += option_names(node, f"{name}.")
        else:
            names.append(name)
    return names


def near_option(typed: str, names: Iterable[str]) -> str:
    """' Did you mean X?' for the nearest option, with or without its section; else how to see all."""
    known = sorted(names)
    last = typed.rpartition(".")[2].lower()
    # A whole name in the wrong section is nearer than a similar one in the right section.
    for cutoff in (1.0, 0.7):
        if match := difflib.get_close_matches(typed.lower(), known, n=1, cutoff=cutoff):
            return f" Did you mean {match[0]!r}?"
        ends = {name.rpartition(".")[2].lower(): name for name in reversed(known)}
        if match := difflib.get_close_matches(last, ends, n=1, cutoff=cutoff):
            return f" Did you mean {ends[match[0]]!r}?"
    # Only a faint likeness is left, which names with their sections have in common most often.
    match = difflib.get_close_matches(typed.lower(), known, n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else " All options: python main.py --help."


def assign(config: DictConfig, override: Override) -> None:
    """Give one option its value as Hydra would, and refuse what Hydra refuses late or accepts and ignores."""
    key, word = override.key_or_group, override.input_line
    if is_in_open_section(config, key) and override.package is None and not override.is_delete():
        OmegaConf.update(config, key, override.value(), force_add=True)
        return
    node = _find(config, key)
    if node is None or override.package is not None:
        raise OptionError(_no_option(config, override))

    # Hydra would delete an option, add it, or leave it missing, and the run would fail later.
    if override.is_delete():
        raise OptionError(f"{word}: no option can be taken away; give it another value.")
    if override.is_add() and not override.is_force_add():
        raise OptionError(f"{word}: leave out the +, the option is there already.")
    value: Any = override.value()
    if value == "???":
        raise OptionError(f"{key} needs a value; it should be {_kind(node)}.")

    if isinstance(node, ListConfig) and isinstance(value, dict):
        value = as_pairs(value)

    # OmegaConf knows the type of each option, and converts or refuses the value.
    try:
        OmegaConf.update(config, key, value, merge=True)
    except OmegaConfBaseException as error:
        raise OptionError(_refusal(override, node, error)) from error


def _no_option(config: DictConfig, override: Override) -> str:
    """The sentence for an option that does not exist: another spelling, else the nearest name."""
    key = override.key_or_group
    names = option_names(config)
    _, has_value, value = str(override.input_line).partition("=")
    sections = [str(section) for section in config if section != "hydra"]
    known_elsewhere = answer(key, value if has_value else None, names)
    typed = override.get_key_element().lstrip("+~")
    return known_elsewhere or f"There is no option {typed!r}.{near_option(key, [*names, *sections])}"


def _find(config: DictConfig, key: str) -> Node | None:
    """The node of a dotted name; None where there is none."""
    current: Any = config
    for part in key.split("."):
        if not isinstance(current, DictConfig) or part not in current:
            return None
        current = node_of(current, part)
    return current


def is_in_open_section(config: DictConfig, key: str) -> bool:
    """Whether users choose the names in the section of an option, or in one around it.

    So it is with `env.parts.NAME.size`, which is checked by the family of the part.
    """
    sections = [key.rsplit(".", depth)[0] for depth in range(1, key.count(".") + 1)]
    nodes = [_find(config, section) for section in sections]
    return any(
        isinstance(node, AnyNode) or (isinstance(node, DictConfig) and OmegaConf.get_type(node) is dict)
        for node in nodes
    )


def _refusal(override: Override, node: Node, error: OmegaConfBaseException) -> str:
    """Why an option does not take a value: what it takes instead."""
    key = override.key_or_group
    value: Any = override.value()
    if isinstance(node, DictConfig):
        first, cause = next(iter(node)), str(error).partition("\n")[0]
        return f"{key} is a section of options, set one by one ({key}.{first}=...): {cause}."
    if isinstance(node, EnumNode):
        known = [member.name for member in node.enum_type]
        return f"{override.input_line} is not one of its values.{nearest(str(value), known)}"
    sentence = f"{override.input_line} should be {_kind(node)}"
    # 1e6 is a number with a fraction to YAML, even though its fraction is 0.
    if isinstance(node, IntegerNode) and isinstance(value, float) and value.is_integer():
        sentence += f", written {int(value)}"
    return f"{sentence}."


def _kind(node: Node) -> str:
    """The values that an option takes, in words."""
    kinds = {IntegerNode: "a whole number", FloatNode: "a number", BooleanNode: "true or false"}
    kind = kinds.get(type(node), "text")
    if isinstance(node, EnumNode):
        kind = f"one of {', '.join(member.name for member in node.enum_type)}"
    if isinstance(node, ListConfig):
        kind = f"a list such as {shown(list(node) or ['a', 'b'])}"
    if accepts_null(node):
        kind += " or null"
    return kind

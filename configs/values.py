"""One override into a typed config: whether the option exists, and whether the value is of its kind."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import BooleanNode, DictConfig, EnumNode, FloatNode, IntegerNode, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from utils.options import OptionError, nearest


def option_names(config: DictConfig, prefix: str = "") -> list[str]:
    """The dotted names of all options."""
    names: list[str] = []
    for key in config:
        node = config._get_node(key)
        name = f"{prefix}{key}"
        names += (
            option_names(node, f"{name}.")
            if isinstance(node, DictConfig) and not node._is_missing()
            else [name]
        )
    return names


def near_option(typed: str, names: Iterable[str]) -> str:
    """' Did you mean X?' for the nearest option, where a name without its section counts too; else how to see
    all.
    """
    known = sorted(names)
    last = typed.rpartition(".")[2].lower()
    for cutoff in (
        1.0,
        0.7,
    ):  # a whole name in the wrong place is nearer than a similar one in the right place
        if match := difflib.get_close_matches(typed.lower(), known, n=1, cutoff=cutoff):
            return f" Did you mean {match[0]!r}?"
        ends = {name.rpartition(".")[2].lower(): name for name in reversed(known)}
        if match := difflib.get_close_matches(last, ends, n=1, cutoff=cutoff):
            return f" Did you mean {ends[match[0]]!r}?"
    match = difflib.get_close_matches(typed.lower(), known, n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else " All options: python main.py --help."


def assign(config: DictConfig, override: Override) -> None:
    """Give one option its value, as Hydra will; what Hydra would refuse later, or accept and ignore, is one
    sentence now.
    """
    key, word = override.key_or_group, override.input_line
    node = _find(config, key)
    if node is None or override.package is not None:
        raise OptionError(
            f"There is no option {override.get_key_element().lstrip('+~')!r}.{near_option(key, [*option_names(config), *map(str, config)])}"
        )
    if override.is_delete():
        raise OptionError(f"{word}: no option can be taken away; give it another value.")
    if override.is_add() and not override.is_force_add():
        raise OptionError(f"{word}: leave out the +, the option is there already.")
    value: Any = override.value()
    if value == "???":
        raise OptionError(f"{key} needs a value; it should be {_kind(node)}.")
    try:
        OmegaConf.update(config, key, value, merge=True)
    except OmegaConfBaseException as error:
        raise OptionError(_refusal(override, node, error)) from error


def _find(config: DictConfig, key: str) -> Node | None:
    current: Any = config
    for part in key.split("."):
        if not isinstance(current, DictConfig) or part not in current:
            return None
        current = current._get_node(part)
    return current


def _refusal(override: Override, node: Node, error: OmegaConfBaseException) -> str:
    key = override.key_or_group
    value: Any = override.value()
    if isinstance(node, DictConfig):
        return f"{key} is a section of options, set one by one ({key}.{next(iter(node))}=...): {str(error).partition(chr(10))[0]}."
    if isinstance(node, EnumNode):
        return f"{override.input_line} is not one of its values.{nearest(str(value), [member.name for member in node.enum_type])}"
    whole = isinstance(node, IntegerNode) and isinstance(value, float) and value.is_integer()
    return f"{override.input_line} should be {_kind(node)}{f', written {int(value)}' if whole else ''}."


def _kind(node: Node) -> str:
    if isinstance(node, EnumNode):
        kind = f"one of {', '.join(member.name for member in node.enum_type)}"
    elif isinstance(node, IntegerNode):
        kind = "a whole number"
    elif isinstance(node, FloatNode):
        kind = "a number"
    elif isinstance(node, BooleanNode):
        kind = "true or false"
    else:
        kind = (
            f"a list such as {shown(list(node)) if len(node) else '[a,b]'}"
            if isinstance(node, ListConfig)
            else "text"
        )
    return f"{kind} or null" if node._is_optional() else kind


def shown(value: Any) -> str:
    """A value as one types it."""
    if isinstance(value, list):
        return f"[{','.join(shown(one) for one in value)}]"
    if isinstance(value, Enum):
        return value.name
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )

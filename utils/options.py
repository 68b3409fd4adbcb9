"""Options: dataclass fields with a line of help and a range, and one clear sentence for a wrong one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from utils.text import harmless

T = TypeVar("T")


class OptionError(ValueError):
    """A wrong name, type, range or combination of options; its text is one sentence for the user."""

    def __init__(self, text: object = "") -> None:
        # It repeats what was typed, or what stands in the run folder of somebody else.
        super().__init__(harmless(str(text)))


@dataclass(frozen=True)
class OnlyIf:
    """The condition under which a run reads an option, and the reason why any other run does not."""

    # Called with the config of the run and with what its algorithm needs.
    holds: Callable[[Any, Any], bool]
    # The reason; `{run}` in it stands for the config, as in `{run.algorithm.name}`.
    otherwise: str


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    only_if: OnlyIf | None = None,
) -> Any:
    """A dataclass field with its help, its range (low <= value <= high, value > above), and its readers."""
    metadata = {"help": help, "low": low, "high": high, "above": above, "only_if": only_if}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def near(name: str, names: Iterable[str]) -> str:
    """' Did you mean X?' for the name closest to what was typed; nothing where none is close."""
    folded = {known.lower(): known for known in sorted(names)}
    for match in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5):
        return f" Did you mean {folded[match]!r}?"
    return ""


def nearest(name: str, names: Iterable[str]) -> str:
    """' Did you mean X?' for the name closest to what was typed, or else all the names."""
    known = sorted(names)
    return near(name, known) or f" Known: {', '.join(known)}."


def range_text(item: Field[Any]) -> str:
    """The range of one option in words; empty without one."""
    low, high, above = (item.metadata.get(key) for key in ("low", "high", "above"))
    limits = {"at least": low, "more than": above, "at most": high}
    return " and ".join(f"{words} {limit}" for words, limit in limits.items() if limit is not None)


def range_problems(config: Any, prefix: str = "") -> Iterator[str]:
    """One sentence for each value of a config dataclass, and of those inside it, that is out of range."""
    for item in fields(config):
        value = getattr(config, item.name)
        name = f"{prefix}{item.name}"
        if is_dataclass(value):
            yield from range_problems(value, f"{name}.")
            continue
        # A range holds for each element of a list, and for numbers only.
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                continue
            low, high, above = (item.metadata.get(key) for key in ("low", "high", "above"))
            outside = (
                (low is not None and number < low)
                or (high is not None and number > high)
                or (above is not None and number <= above)
            )
            if outside or not math.isfinite(number):
                yield f"{name}={number} is out of range: it must be {range_text(item) or 'finite'}."


def unread_options(part: Any, run: Any, needs: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, reason) of each option or section in this part of a run's config that the run never reads."""
    for item in fields(part):
        name, value = f"{prefix}{item.name}", getattr(part, item.name)
        condition: OnlyIf | None = item.metadata.get("only_if")
        if condition is not None and not condition.holds(run, needs):
            yield name, condition.otherwise.format(run=run)
        elif is_dataclass(value):
            yield from unread_options(value, run, needs, f"{name}.")


def from_keywords(config: type[T], owner: str, values: Mapping[str, Any]) -> T:
    """A config dataclass from keyword arguments; a wrong name or type is refused in one sentence."""
    known = {item.name: item for item in fields(config)}  # pyright: ignore[reportArgumentType]
    hints = get_type_hints(config)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise OptionError(f"{owner} has no option {name!r}.{nearest(name, known)}")
        converted[name] = _converted(owner, name, value, hints[name])
    missing = [
        name
        for name, item in known.items()
        if item.default is MISSING and item.default_factory is MISSING and name not in converted
    ]
    if missing:
        raise OptionError(f"{owner} needs the option {missing[0]!r}.")
    made = config(**converted)
    for problem in range_problems(made):
        raise OptionError(f"{owner}: {problem}")
    return made


def _converted(owner: str, name: str, value: Any, hint: Any) -> Any:
    """A value as its type annotation wants it: an enum's member by its name, a whole number as a float."""
    union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    allowed = tuple(get_origin(kind) or kind for kind in union)  # list[str] is checked as a list
    if any(value is None and kind is type(None) for kind in allowed):
        return value
    if Any in allowed:  # an option that its owner checks
        return value

    if isinstance(value, Mapping) and list in allowed:
        return as_pairs(value)

    # The members of an enum are given by their names, as on the command line.
    for kind in allowed:
        if isinstance(kind, type) and issubclass(kind, Enum):
            if isinstance(value, kind):
                return value
            names = [member.name for member in kind]
            if value in names:
                return kind[value]
            raise OptionError(
                f"{owner}: {name}={value!r} is not one of its values.{nearest(str(value), names)}"
            )

    # Every whole number is a float, but True and False are no numbers here.
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = tuple(kind for kind in allowed if isinstance(kind, type))
    if not plain or (isinstance(value, plain) and not (isinstance(value, bool) and bool not in plain)):
        return value
    raise OptionError(
        f"{owner}: {name}={value!r} should be of type {' or '.join(kind.__name__ for kind in plain)}."
    )


def as_pairs(mapping: Mapping[Any, Any]) -> list[str]:
    """A mapping, where an option is a list of pairs: [Authorization:HF_TOKEN] may be typed with { }, too."""
    return [f"{name}:{shown(part)}" for name, part in mapping.items()]


def shown(value: Any) -> str:
    """A value as it is typed on a command line."""
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{shown(part)}' for name, part in value.items())}}}"
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)

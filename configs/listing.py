"""The list of a group's choices, as env=list shows it and as the answer to an unknown name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from configs.schema import choice_description
from envs.base import Shelf
from envs.meta import FAMILIES


def list_text(group: str, names: Sequence[str], family_of: Callable[[str], str]) -> str:
    """The choices of a group, one line each; environments stand on the shelves of their families."""
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

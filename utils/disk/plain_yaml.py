"""YAML of others as plain data: nothing in it is run, and no part of it stands for more than itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# Every file that Retrial or Hydra writes for a run has a few thousand bytes.
MOST_BYTES = 1_000_000
MOST_DEPTH = 50
# Of one number or text: YAML takes 1:1:1:1 for a number, in the square of the time that it takes to read it.
MOST_LETTERS = 10_000
# Where libyaml is built in, it reads four times as fast as Python does.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_plain_yaml(file: Path) -> Any:
    """The values in a file; ValueError says why it cannot be read, in a few words."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        _check_events(content)
        loader = _Loader(content)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (OSError, yaml.YAMLError, OverflowError, ValueError) as error:
        words = getattr(error, "problem", None) or str(error)
        raise ValueError(words.strip().partition("\n")[0]) from error


def _check_events(content: bytes) -> None:
    """Refuse what could grow, or be run, before any value is made of it."""
    depth = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.AliasEvent):  # a few of these can stand for millions of values
            raise ValueError("it has an alias (*name), which no record has")
        if (tag := getattr(event, "tag", None)) is not None:
            raise ValueError(f"it has a tag ({tag}), which no record has")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_LETTERS:
            raise ValueError(f"it has a value of more than {MOST_LETTERS:,} letters")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.CollectionStartEvent) and depth > MOST_DEPTH:
            raise ValueError("its brackets are too deep" if event.flow_style else "it is nested too deep")

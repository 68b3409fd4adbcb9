"""The words in which options describe fields: name:size, name=value, module:function."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from utils.options import OptionError


def named_size(option: str, text: str, default: int | None = 1) -> tuple[str, int]:
    """The name and the size of `name:size`, or of a name alone."""
    name, colon, size = text.partition(":")
    if not colon and default is not None and name:
        return name, default
    if not name or not size.isdecimal() or int(size) < 1:
        raise OptionError(f"{option}: {text!r} should be name:size, with a size of at least 1.")
    return name, int(size)


def named_value(option: str, text: str) -> tuple[str, str]:
    """The name and the text behind it in `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise OptionError(f"{option}: {text!r} should be name=value.")
    return name, value


def value_of(text: str) -> Any:
    """A value that is JSON, or else the word itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def imported_function(option: str, text: str) -> Callable[..., Any]:
    """The function that module:function stands for."""
    module, colon, name = text.rpartition(":")
    if not module or not colon or not name.isidentifier():
        raise OptionError(f"{option}: {text!r} should be module:function.")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise OptionError(
            f"{option}={text} needs the module {module}, which cannot be imported ({error})."
        ) from None
    if not callable(found):
        raise OptionError(f"{option}: {module} has no {name!r} to call.")
    return found

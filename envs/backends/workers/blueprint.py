"""What a worker builds, as bytes: a blueprint is pickled by the trainer and unpickled in the worker."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle

from envs.backends.base import BackendError, Block
from envs.backends.workers.transport import RowTransport
from envs.layout import Layout

# How deep the search for the part that cannot be pickled goes.
SEARCH_DEPTH = 5


@dataclass(frozen=True)
class Blueprint:
    """What a worker builds: the blocks of each of its segments, in rows of all `num_slots`."""

    segments: list[tuple[Block, ...]]
    layout: Layout
    num_slots: int
    transport: type[RowTransport]


def pickled(blueprint: Blueprint) -> bytes:
    """Return the blueprint as bytes; a `BackendError` names the part that cannot be pickled."""
    try:
        return cloudpickle.dumps(blueprint)
    except Exception as error:
        # Only now that it has failed: pickling a value part by part is slow.
        factories = (block.factory for blocks in blueprint.segments for block in blocks)
        culprits = (
            culprit
            for factory in factories
            for culprit in _unpicklable_parts(factory, "factory", SEARCH_DEPTH)
        )
        where, reason = next(culprits, ("the environments", error))
        raise BackendError(
            f"The environments cannot be sent to worker processes: {where} cannot be pickled ({reason})."
        ) from error


def _unpicklable_parts(value: Any, name: str, depth: int) -> Iterator[tuple[str, Exception]]:
    """Yield (name, reason) of the innermost part of a value that cannot be pickled, if there is one."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the object that is pickled
        # The innermost part names the user's mistake best; the value itself is named if no part fails alone.
        inner: Iterator[tuple[str, Exception]] = iter(())
        if depth:
            inner = (
                culprit
                for part_name, part in _parts_of(value, name).items()
                for culprit in _unpicklable_parts(part, part_name, depth - 1)
            )
        yield next(inner, (f"{name} (a {type(value).__name__})", error))


def _parts_of(value: Any, name: str) -> dict[str, Any]:
    """Return what is pickled with a value: what a function captures, items, or attributes, by their names."""
    if inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        used = {**captured.globals, **captured.nonlocals}
        return {f"{key} (used by {value.__qualname__})": part for key, part in used.items()}
    if isinstance(value, dict):
        return {f"{name}[{key!r}]": part for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"{name}[{index}]": part for index, part in enumerate(value)}
    return {f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()}

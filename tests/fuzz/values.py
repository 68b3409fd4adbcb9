"""Values that nobody expects, for options, manifests and metrics."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

# What JSON and YAML can hold where something else is expected.
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    -(2**63),
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "null",
    "1",
    "x" * 5000,
    "ü€\u2028",
    "\x1b[2J\x07",
    "../../outside",
    "/etc/passwd",
    "${oc.env:HOME}",
    "os:system",
    [],
    [[]],
    [1, [2, [3]]],
    ["a", None, 1e999],
    [[1.0], [2.0, 3.0]],
    {},
    {"a": 1},
    {"": {"": {}}},
]


def odd_value(rng: np.random.Generator) -> Any:
    """One of them, as a copy."""
    return copy.deepcopy(ODD[rng.integers(len(ODD))])


def places(tree: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree of dicts and lists, its sections too."""
    parts: Any = tree.items() if isinstance(tree, dict) else ()
    if isinstance(tree, list):
        parts = enumerate(tree)
    for key, part in parts:
        yield (*way, key)
        yield from places(part, (*way, key))


def with_odd_value(tree: Any, rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
    """A copy of a tree in which one value is another one, or gone, and the way to it."""
    changed = copy.deepcopy(tree)
    ways = list(places(changed))
    if not ways:
        return odd_value(rng), ()
    way = ways[rng.integers(len(ways))]
    section = changed
    for key in way[:-1]:
        section = section[key]
    if rng.random() < 0.2:
        del section[way[-1]]
    else:
        section[way[-1]] = odd_value(rng)
    return changed, way

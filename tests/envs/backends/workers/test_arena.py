"""The arena: the same places on both sides, aligned, zeroed, and with no name that could leak."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from envs.backends.workers.arena import ALIGNMENT, SharedRowsMemory
from envs.base import Layout, Rows
from tests.toys import CountingFamily, DictCountingFamily, TaskFamily


def arrays_of(rows: Rows) -> dict[str, NDArray[Any]]:
    """Every array of the rows."""
    found: dict[str, NDArray[Any]] = {}
    for item in fields(rows):
        value = getattr(rows, item.name)
        found |= (
            {f"{item.name}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {item.name: value}
        )
    return found


@pytest.mark.parametrize("family", [CountingFamily(), DictCountingFamily()], ids=["vector", "dict"])
def test_both_sides_see_the_same_arrays(family: TaskFamily) -> None:
    layout = Layout(family.spec, with_task=True, with_flag=True)
    ours = SharedRowsMemory(layout, 5)
    theirs = SharedRowsMemory(layout, 5, os.dup(ours.descriptor))
    ours.close()
    sides = [
        arrays_of(ours.rows) | {"actions": ours.actions},
        arrays_of(theirs.rows) | {"actions": theirs.actions},
    ]
    plain = arrays_of(layout.allocate(5))
    for number, (name, array) in enumerate(sides[0].items()):
        assert not array.any(), "memory starts as zeros"
        if name in plain:
            assert (array.shape, array.dtype) == (plain[name].shape, plain[name].dtype)
        array[...] = np.full(array.shape, number % 2 + 1).astype(array.dtype)
    for number, (name, array) in enumerate(sides[1].items()):
        np.testing.assert_array_equal(
            array, np.full(array.shape, number % 2 + 1).astype(array.dtype), err_msg=name
        )


def test_arrays_are_aligned_and_do_not_overlap() -> None:
    arena = SharedRowsMemory(Layout(CountingFamily().spec), 3)
    arena.close()
    places = sorted(
        (array.ctypes.data, array.nbytes) for array in [*arrays_of(arena.rows).values(), arena.actions]
    )
    assert all(start % ALIGNMENT == 0 for start, _ in places)
    assert all(
        start + size <= following for (start, size), (following, _) in zip(places, places[1:], strict=False)
    )
    assert places[-1][0] + places[-1][1] - places[0][0] <= arena.num_bytes


def test_rows_stay_readable_after_the_arena_is_closed() -> None:
    arena = SharedRowsMemory(Layout(CountingFamily().spec), 3)
    arena.rows.reward[:] = 7.0
    rows = arena.rows
    arena.close()
    arena.close()
    del arena
    assert rows.reward.tolist() == [7.0, 7.0, 7.0]


def test_without_memfd_a_file_without_a_name_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    arena = SharedRowsMemory(Layout(CountingFamily().spec), 3)
    arena.rows.reward[:] = 7.0
    other = SharedRowsMemory(Layout(CountingFamily().spec), 3, os.dup(arena.descriptor))
    assert os.fstat(arena.descriptor).st_nlink == 0
    arena.close()
    assert other.rows.reward.tolist() == [7.0, 7.0, 7.0]

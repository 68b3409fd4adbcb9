"""Both transports carry the same numbers and refuse bytes that are no rows; shared memory is one place."""

from __future__ import annotations

import os
import pickle
import threading
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Dict
from numpy.typing import NDArray

from envs.backends.base import BackendError, Block
from envs.backends.workers.messages import MalformedMessage
from envs.backends.workers.transport import (
    ALIGNMENT,
    Blueprint,
    RowTransport,
    SentRows,
    SharedRows,
    bytes_needed,
    pickled,
)
from envs.base import Rows, Slots, arrays_of
from envs.layout import Layout
from tests.toys import CountingFamily, DictCountingFamily, TaskFamily

SLOTS: list[Slots] = [slice(1, 4), np.array([0, 2, 4]), np.array([4, 1])]
TRANSPORTS = [SharedRows, SentRows]
FAMILIES = [CountingFamily(), DictCountingFamily()]


def sides(kind: type[RowTransport], family: TaskFamily) -> tuple[RowTransport, RowTransport]:
    """The trainer's transport and the worker's."""
    layout = Layout(family.spec, with_task=True, with_flag=True)
    ours = kind(layout, 5)
    theirs = kind(layout, 5, os.dup(ours.descriptor) if ours.descriptor >= 0 else -1)
    ours.close()
    return ours, theirs


def written(rows: Rows) -> list[NDArray[Any]]:
    """What a shard writes."""
    return [*arrays_of(rows.obs), rows.reward, rows.terminated, rows.truncated, rows.info]


@pytest.mark.parametrize("slots", SLOTS, ids=["slice", "sorted", "unsorted"])
@pytest.mark.parametrize("kind", TRANSPORTS)
@pytest.mark.parametrize("family", FAMILIES, ids=["vector", "dict"])
def test_rows_and_actions_arrive_and_nothing_else_changes(
    family: TaskFamily, kind: type[RowTransport], slots: Slots
) -> None:
    ours, theirs = sides(kind, family)
    own = Layout(family.spec, with_task=True, with_flag=True).part(theirs.rows, 0, 5)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    ours.publish(slots, actions)
    np.testing.assert_array_equal(theirs.actions(slots, ours.enclose(slots)), actions[slots])
    assert len(ours.enclose(slots)) == ours.action_bytes * len(actions[slots])
    for number, array in enumerate([*arrays_of(own.obs), own.reward, own.info], start=1):
        array[slots] = number + np.arange(len(array[slots])).reshape(-1, *[1] * (array.ndim - 1))
    own.terminated[slots] = True
    ours.unpack(slots, theirs.pack(slots))
    for mine, other in zip(written(ours.rows), written(theirs.rows), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert ours.rows.terminated[slots].all()
    assert ours.rows.terminated.sum() == len(np.arange(5)[slots])


def test_what_the_trainer_writes_into_its_rows_is_not_overwritten() -> None:
    ours, theirs = sides(SentRows, DictCountingFamily())
    assert isinstance(ours.rows.obs, dict)
    ours.rows.obs["task"][:] = 3.0
    ours.rows.task[:] = 3.0
    ours.unpack(slice(0, 5), theirs.pack(slice(0, 5)))
    assert (ours.rows.obs["task"] == 3.0).all() and (ours.rows.task == 3.0).all()


@pytest.mark.parametrize(("kind", "change"), [(SharedRows, 1), (SentRows, 1), (SentRows, -1)])
def test_bytes_that_are_no_rows_are_refused(kind: type[RowTransport], change: int) -> None:
    ours, _ = sides(kind, CountingFamily())
    with pytest.raises(MalformedMessage, match="rows"):
        ours.unpack(slice(0, 2), b"x" * (2 * ours.reply_bytes + change))


def test_the_sizes_are_those_of_the_arrays() -> None:
    family = DictCountingFamily()
    assert isinstance(family.spec.obs_space, Dict)
    sent = SentRows(Layout(family.spec), 3)
    assert (sent.action_bytes, sent.reply_bytes) == (8, 20 + 6 + 8 + 1 + 1 + 8)
    assert (SharedRows.action_bytes, SharedRows.reply_bytes, SentRows.descriptor) == (0, 0, -1)


# -- the shared memory ---------------------------------------------------------------------------------------


def named_arrays(rows: Rows) -> dict[str, NDArray[Any]]:
    """Every array of the rows that a shard writes."""
    return {str(number): array for number, array in enumerate(rows.of_shard)}


@pytest.mark.parametrize("family", FAMILIES, ids=["vector", "dict"])
def test_what_recovery_needs_is_in_no_memory_that_a_worker_reaches(family: TaskFamily) -> None:
    layout = Layout(family.spec, with_task=True, with_flag=True)
    ours = SharedRows(layout, 5)
    theirs = SharedRows(layout, 5, os.dup(ours.descriptor))
    ours.close()
    for array in (*theirs.rows.of_shard, theirs.actions(slice(None), b"")):
        array[...] = np.ones((), array.dtype)
    of_shard = {id(array) for array in ours.rows.of_shard}
    others = [getattr(ours.rows, item.name) for item in fields(ours.rows) if item.name != "obs"]
    kept = [array for array in others if id(array) not in of_shard]
    assert len(kept) == 7 and not any(array.any() for array in kept)


@pytest.mark.parametrize("family", FAMILIES, ids=["vector", "dict"])
def test_both_sides_see_the_same_arrays(family: TaskFamily) -> None:
    layout = Layout(family.spec, with_task=True, with_flag=True)
    ours = SharedRows(layout, 5)
    theirs = SharedRows(layout, 5, os.dup(ours.descriptor))
    ours.close()
    our_arrays = named_arrays(ours.rows) | {"actions": ours.actions(slice(None), b"")}
    their_arrays = named_arrays(theirs.rows) | {"actions": theirs.actions(slice(None), b"")}
    plain = named_arrays(layout.allocate(5))
    for number, (name, array) in enumerate(our_arrays.items()):
        assert not array.any(), "memory starts as zeros"
        if name in plain:
            assert (array.shape, array.dtype) == (plain[name].shape, plain[name].dtype)
        array[...] = np.full(array.shape, number % 2 + 1).astype(array.dtype)
    for number, (name, array) in enumerate(their_arrays.items()):
        expected = np.full(array.shape, number % 2 + 1).astype(array.dtype)
        np.testing.assert_array_equal(array, expected, err_msg=name)


def test_arrays_are_aligned_and_do_not_overlap() -> None:
    memory = SharedRows(Layout(CountingFamily().spec), 3)
    memory.close()
    arrays = [*named_arrays(memory.rows).values(), memory.actions(slice(None), b"")]
    places = sorted((array.ctypes.data, array.nbytes) for array in arrays)
    assert all(start % ALIGNMENT == 0 for start, _ in places)
    assert all(
        start + size <= following for (start, size), (following, _) in zip(places, places[1:], strict=False)
    )
    assert places[-1][0] + places[-1][1] - places[0][0] <= bytes_needed(Layout(CountingFamily().spec), 3)


def test_rows_stay_readable_after_the_memory_is_closed() -> None:
    memory = SharedRows(Layout(CountingFamily().spec), 3)
    memory.rows.reward[:] = 7.0
    rows = memory.rows
    memory.close()
    memory.close()
    del memory
    assert rows.reward.tolist() == [7.0, 7.0, 7.0]


def test_without_memfd_a_file_without_a_name_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = SharedRows(Layout(CountingFamily().spec), 3)
    memory.rows.reward[:] = 7.0
    other = SharedRows(Layout(CountingFamily().spec), 3, os.dup(memory.descriptor))
    assert os.fstat(memory.descriptor).st_nlink == 0
    memory.close()
    assert other.rows.reward.tolist() == [7.0, 7.0, 7.0]


# -- blueprints ----------------------------------------------------------------------------------------------


def blueprint_of(factory: object) -> Blueprint:
    block = Block(factory, 0, 2)  # pyright: ignore[reportArgumentType]
    return Blueprint([(block,)], Layout(CountingFamily().spec), 2, SharedRows)


def test_a_blueprint_arrives_with_its_factories() -> None:
    family = CountingFamily()
    received = pickle.loads(pickled(blueprint_of(lambda: family)))
    assert (received.num_slots, received.transport) == (2, SharedRows)
    assert received.segments[0][0].factory().spec.name == family.spec.name


def test_the_innermost_part_that_cannot_be_pickled_is_named() -> None:
    family, parts = CountingFamily(), {"locks": [1, threading.Lock()]}

    def factory() -> CountingFamily:
        assert parts
        return family

    with pytest.raises(BackendError, match=r"parts \(used by .*factory\)\['locks'\]\[1\] \(a lock\)"):
        pickled(blueprint_of(factory))

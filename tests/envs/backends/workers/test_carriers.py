"""Both ways to carry actions and rows carry the same numbers, and refuse bytes that are no rows."""

from __future__ import annotations

import os

import numpy as np
import pytest
from gymnasium.spaces import Dict

from envs.backends.workers.carriers import RowTransport, SentRows, SharedRows
from envs.base import Layout, Rows, Slots
from tests.toys import CountingFamily, DictCountingFamily, TaskFamily

SLOTS: list[Slots] = [slice(1, 4), np.array([0, 2, 4]), np.array([4, 1])]
CARRIERS = [SharedRows, SentRows]
FAMILIES = [CountingFamily(), DictCountingFamily()]


def sides(kind: type[RowTransport], family: TaskFamily) -> tuple[RowTransport, RowTransport]:
    """The trainer's carrier and the worker's."""
    layout = Layout(family.spec, with_task=True, with_flag=True)
    ours = kind(layout, 5)
    theirs = kind(layout, 5, os.dup(ours.descriptor) if ours.descriptor >= 0 else -1)
    ours.close()
    return ours, theirs


def obs_of(rows: Rows) -> list[np.ndarray]:
    return list(rows.obs.values()) if isinstance(rows.obs, dict) else [rows.obs]


@pytest.mark.parametrize("slots", SLOTS, ids=["slice", "sorted", "unsorted"])
@pytest.mark.parametrize("kind", CARRIERS)
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
    for number, array in enumerate([*obs_of(own), own.reward, own.info], start=1):
        array[slots] = number + np.arange(len(array[slots])).reshape(-1, *[1] * (array.ndim - 1))
    own.terminated[slots] = True
    ours.unpack(slots, theirs.pack(slots))
    for mine, other in zip(
        [*obs_of(ours.rows), ours.rows.reward, ours.rows.terminated, ours.rows.truncated, ours.rows.info],
        [
            *obs_of(theirs.rows),
            theirs.rows.reward,
            theirs.rows.terminated,
            theirs.rows.truncated,
            theirs.rows.info,
        ],
        strict=True,
    ):
        np.testing.assert_array_equal(mine, other)
    assert ours.rows.terminated[slots].all() and ours.rows.terminated.sum() == 3 - (
        isinstance(slots, np.ndarray) and len(slots) == 2
    )


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
    with pytest.raises(ValueError, match="rows"):
        ours.unpack(slice(0, 2), b"x" * (2 * ours.reply_bytes + change))


def test_the_sizes_are_those_of_the_arrays() -> None:
    family = DictCountingFamily()
    assert isinstance(family.spec.obs_space, Dict)
    sent = SentRows(Layout(family.spec), 3)
    assert (sent.action_bytes, sent.reply_bytes) == (8, 20 + 6 + 8 + 1 + 1 + 8)
    assert (SharedRows.action_bytes, SharedRows.reply_bytes, SentRows.descriptor) == (0, 0, -1)

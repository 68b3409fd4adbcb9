"""A blueprint that cannot be pickled is refused by the name of its innermost part that cannot be."""

from __future__ import annotations

import pickle
import threading

import pytest

from envs.backends.base import BackendError, Block
from envs.backends.workers.blueprint import Blueprint, pickled
from envs.backends.workers.transport import SharedRows
from envs.layout import Layout
from tests.toys import CountingFamily


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

"""Blocks: neighbouring slots of one factory share a block, and every distinct factory has a label."""

from __future__ import annotations

import pytest

from envs.manager.blocks import blocks_of, labels_of
from tests.toys import CountingFamily, DictCountingFamily


def first() -> CountingFamily:
    """A factory."""
    return CountingFamily()


def second() -> CountingFamily:
    """Another factory, of the same spaces."""
    return CountingFamily()


def test_one_family_is_one_block_whose_factory_returns_that_family() -> None:
    family = CountingFamily()
    (block,), families = blocks_of(family, 3)
    assert (block.start, block.stop) == (0, 3) and block.factory() is family and families == [family]
    assert labels_of([block]) == [0]


def test_neighbours_of_one_factory_share_a_block() -> None:
    blocks, families = blocks_of([first, first, second, first], None)
    assert [(block.start, block.stop) for block in blocks] == [(0, 2), (2, 3), (3, 4)]
    assert labels_of(blocks) == [0, 1, 0] and len(families) == 3


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="num_envs must be given"):
        blocks_of(CountingFamily(), None)
    with pytest.raises(ValueError, match="num_envs=3 does not fit 2 factories"):
        blocks_of([first, second], 3)
    with pytest.raises(ValueError, match=r"The factories disagree on obs_space: Counting has .*, .* has"):
        blocks_of([CountingFamily, DictCountingFamily], None)

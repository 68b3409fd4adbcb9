"""Which factory makes which slots of a manager: blocks of consecutive slots, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.backends.base import Block, Factory
from envs.base import TaskFamily


def blocks_of(
    families: TaskFamily | Sequence[Factory], num_envs: int | None
) -> tuple[list[Block], list[TaskFamily]]:
    """Consecutive slots of the same factory as blocks, and the family of each block."""
    # One family: all slots are one block.
    if isinstance(families, TaskFamily):
        if num_envs is None or num_envs < 1:
            raise ValueError("num_envs must be given, and at least 1, with a single family.")
        return [Block(_FamilyFactory(families), 0, num_envs)], [families]

    # A factory for each slot: neighbours with the same one share a block, so that they share a shard.
    factories = list(families)
    if not factories or num_envs not in (None, len(factories)):
        raise ValueError(f"num_envs={num_envs} does not fit {len(factories)} factories, one per slot.")
    blocks: list[Block] = []
    for slot, factory in enumerate(factories):
        if blocks and blocks[-1].factory is factory:
            blocks[-1] = Block(factory, blocks[-1].start, slot + 1)
        else:
            blocks.append(Block(factory, slot, slot + 1))
    # One family of each block is built here to learn its spaces; workers build their own.
    built = [block.factory() for block in blocks]
    _check_agreement(built)
    return blocks, built


def _check_agreement(families: Sequence[TaskFamily]) -> None:
    """Refuse families that cannot share rows: one agent reads the observations of all slots."""
    first = families[0].spec
    for other in (family.spec for family in families[1:]):
        # Names, horizons and rewards may differ: that is what a mixture is for.
        for name in ("obs_space", "action_space", "task_dim", "info_names"):
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                raise ValueError(
                    f"The factories disagree on {name}: {first.name} has {ours}, {other.name} has {theirs}."
                )


def labels_of(blocks: Sequence[Block]) -> list[int]:
    """For each block the number of its factory among the distinct ones, in the order of the slots."""
    # Factories are compared by identity: two equal partials may still be meant as two parts of a mixture.
    label_of: dict[int, int] = {}
    return [label_of.setdefault(id(block.factory), len(label_of)) for block in blocks]


@dataclass(frozen=True)
class _FamilyFactory:
    """The factory that returns a family which exists already."""

    family: TaskFamily

    def __call__(self) -> TaskFamily:
        return self.family

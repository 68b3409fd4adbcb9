"""The shard of a mixture: a slot plays its part exactly as that part's own shard would."""

from __future__ import annotations

import numpy as np
import pytest

from envs.base import SlotError
from envs.meta.make_env import make_family
from envs.meta.mixtures.mixture import Mixture
from envs.meta.mixtures.mixture_shard import MixtureShard
from tests.envs.meta.played import Played
from tests.toys import CountingFamily

PARTS = {"small": {"family": "GridNavi"}, "treasure": {"family": "TMazePassive", "length": 6}}


def mixture(**options: object) -> Mixture:
    family = make_family("Mixture", parts=PARTS, **options)
    assert isinstance(family, Mixture)
    return family


def test_a_part_gives_the_rows_of_its_own_family() -> None:
    family = mixture()
    rng = np.random.default_rng(0)
    tasks = family.sample_tasks(rng, 6, "train")
    mixed = Played(family, 6)
    mixed.reset(np.arange(6), tasks, np.arange(6))
    for number, own in enumerate(family.families):
        slots = np.flatnonzero(tasks[:, 0] == number)
        alone = Played(own, 6)
        alone.reset(slots, tasks[slots, 1 : 1 + own.spec.task_dim], slots)
        for _ in range(5):
            actions = rng.integers(4, size=len(slots))
            mixed.step(slots, actions)
            alone.step(slots, actions)
            assert mixed.rows.reward[slots].tolist() == alone.rows.reward[slots].tolist()
            assert mixed.rows.terminated[slots].tolist() == alone.rows.terminated[slots].tolist()
            at = [family.spec.info_names.index(name) for name in own.spec.info_names]
            assert np.array_equal(mixed.rows.info[slots][:, at], alone.rows.info[slots])
            assert isinstance(mixed.rows.obs, dict) and isinstance(alone.rows.obs, np.ndarray)
            assert np.array_equal(mixed.rows.obs["vector"][slots], alone.rows.obs[slots])


def test_a_part_is_built_when_it_is_played_first(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    family = mixture()
    for number, own in enumerate(family.families):
        make = own.make_shard
        monkeypatch.setattr(
            own, "make_shard", lambda *a, number=number, make=make: built.append(number) or make(*a)
        )
    played = Played(family, 2)
    assert built == []
    tasks = family.sample_tasks(np.random.default_rng(0), 8, "train")
    first = tasks[tasks[:, 0] == 1][:2]
    played.reset([0, 1], first, [0, 1])
    played.step([0, 1], [0, 0])
    assert built == [1]


def test_the_error_of_a_part_names_the_slot_of_the_mixture() -> None:
    family = mixture()
    played = Played(family, 4)
    tasks = family.sample_tasks(np.random.default_rng(0), 4, "train")
    played.reset(np.arange(4), tasks, np.arange(4))
    assert isinstance(played.shard, MixtureShard)
    shard, _ = played.shard._parts[1]

    def fails(slots: np.ndarray, actions: np.ndarray) -> None:
        raise SlotError(int(slots[-1]), "no")

    shard.step = fails  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SlotError) as caught:
        played.step(np.arange(4), np.zeros(4))
    assert caught.value.slot == np.flatnonzero(tasks[:, 0] == 1)[-1]


def test_all_parts_are_closed_even_where_closing_one_fails() -> None:
    family = mixture()
    played = Played(family, 4)
    played.reset(np.arange(4), family.sample_tasks(np.random.default_rng(0), 4, "train"), np.arange(4))
    closed: list[int] = []
    assert isinstance(played.shard, MixtureShard)

    def closes(number: int) -> None:
        closed.append(number)
        raise RuntimeError(f"part {number}")

    for number, (shard, _) in played.shard._parts.items():
        shard.close = lambda number=number: closes(number)
    with pytest.raises(RuntimeError, match="part"):
        played.shard.close()
    assert sorted(closed) == [0, 1]
    played.shard.close()
    assert len(closed) == 2


def test_the_toy_of_the_tests_is_no_mixture() -> None:
    assert CountingFamily().spec.parts == ()

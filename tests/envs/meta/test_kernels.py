"""The pieces of the families' kernels."""

from __future__ import annotations

import numpy as np
import pytest

from envs.meta.kernels import clipped_actions, index_of, split_choices, split_draws, split_uniforms


def test_all_slots_are_a_view_and_some_are_themselves():
    assert index_of(np.arange(4), 4) == slice(None)
    some = np.array([1, 3])
    assert index_of(some, 4) is some


def test_actions_are_clipped_copies_in_float64():
    actions = np.array([[-2.0, 0.25], [np.inf, -np.inf]], np.float32)
    clipped = clipped_actions(actions, np.arange(2))
    assert clipped.dtype == np.float64
    assert clipped.tolist() == [[-1.0, 0.25], [1.0, -1.0]]
    assert actions[0, 0] == -2.0


@pytest.mark.parametrize("split", ["train", "test"])
def test_split_uniforms_are_uniform_in_the_unit_interval(split: str):
    draws = split_uniforms(np.random.default_rng(0), (20_000,), split)
    assert 0.0 <= draws.min() and draws.max() < 1.0
    assert np.abs(np.quantile(draws, np.linspace(0, 1, 11)) - np.linspace(0, 1, 11)).max() < 0.015


def test_split_uniforms_never_meet():
    points = [
        split_uniforms(np.random.default_rng(0), (1000,), split) * 2**32 % 2 for split in ("train", "test")
    ]
    assert (points[0] == 0).all() and (points[1] == 1).all()


def test_drawn_tasks_keep_to_their_side_and_all_of_them_are_on_one():
    def draw(count: int) -> np.ndarray:
        return rng.integers(20, size=(count, 2)).astype(np.float64)

    sides = []
    for split in ("train", "test"):
        rng = np.random.default_rng(0)
        tasks = split_draws(draw, 20_000, split)
        found, counts = np.unique(tasks, axis=0, return_counts=True)
        assert np.abs(counts / 20_000 - 1 / len(found)).max() < 4.5 * np.sqrt(1 / len(found) / 20_000)
        sides.append({task.tobytes() for task in found})
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 400 and 160 < len(sides[0]) < 240
    with pytest.raises(ValueError, match="'validation'"):
        split_draws(draw, 1, "validation")


def test_choices_are_balanced_in_a_list_and_uniform_one_by_one():
    listed = split_choices(np.random.default_rng(0), 21, (-1.0, 1.0), "test")
    assert abs(int(listed.sum())) == 1
    rng = np.random.default_rng(0)
    single = np.array([split_choices(rng, 1, (-1.0, 1.0), "train")[0] for _ in range(2000)])
    assert abs(single.mean()) < 0.08
    odd = np.array([split_choices(rng, 3, (-1.0, 1.0), "train").sum() for _ in range(2000)])
    assert abs(odd.mean()) < 0.08

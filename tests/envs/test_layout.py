"""Layout: where the task and the new-episode flag stand in an observation, and what a shard sees."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envs.base import EnvSpec
from envs.layout import Layout
from tests.toys import OBS_DIM, CountingFamily, DictCountingFamily


def layout_of(family: CountingFamily, *, with_task: bool = True, with_flag: bool = True) -> Layout:
    return Layout(family.spec, with_task=with_task, with_flag=with_flag)


def test_the_task_then_the_flag_follow_the_familys_observation() -> None:
    layout = layout_of(CountingFamily())
    rows = layout.allocate(3)
    rows.task[:] = [[1, 2], [3, 4], [5, 6]]
    rows.episode_start[1:] = True
    rows.trial_start[2] = True
    layout.write_extra(rows, slice(None))
    assert isinstance(rows.obs, np.ndarray)
    assert rows.obs[:, OBS_DIM:].tolist() == [[1, 2, 0], [3, 4, 1], [5, 6, 0]], (
        "the flag stands on the start rows of episodes 2..k only"
    )
    assert layout.obs_space.shape == (OBS_DIM + 3,)


def test_a_dict_observation_gets_further_keys() -> None:
    layout = layout_of(DictCountingFamily())
    rows = layout.allocate(2)
    rows.task[:] = 7
    layout.write_extra(rows, slice(None))
    assert isinstance(rows.obs, dict) and set(rows.obs) == {"where", "count", "task", "new_episode"}
    assert rows.obs["task"].tolist() == [[7, 7], [7, 7]]
    assert set(layout.part(rows, 0, 1).obs) == {"where", "count"}


def test_a_shard_writes_through_its_part_into_the_rows() -> None:
    layout = layout_of(CountingFamily())
    rows = layout.allocate(4)
    part = layout.part(rows, 1, 3)
    assert isinstance(part.obs, np.ndarray) and isinstance(rows.obs, np.ndarray)
    assert part.obs.shape == (2, OBS_DIM)
    part.obs[:] = 5
    part.reward[:] = 2
    assert rows.obs[:, 0].tolist() == [0, 5, 5, 0] and rows.reward.tolist() == [0, 2, 2, 0]


def test_without_extras_the_space_is_the_familys_own() -> None:
    family = CountingFamily()
    assert layout_of(family, with_task=False, with_flag=False).obs_space is family.spec.obs_space


def test_an_image_has_no_place_for_the_flag() -> None:
    spec = EnvSpec("Pixels", spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(3), 1)
    with pytest.raises(ValueError, match=r"Pixels.*beside a vector"):
        Layout(spec, with_flag=True)


def test_whole_numbers_have_no_place_for_the_task_but_for_the_flag() -> None:
    spec = EnvSpec("Cells", spaces.Box(0, 255, (6,), np.uint8), spaces.Discrete(3), 1)
    with pytest.raises(ValueError, match=r"Cells.*beside a vector of uint8"):
        Layout(spec, with_task=True)
    flagged = Layout(spec, with_flag=True).obs_space
    assert (flagged.shape, flagged.dtype) == ((7,), np.uint8)


def test_the_flag_has_its_bounds_beside_a_vector_and_in_a_dict() -> None:
    for family in (CountingFamily(), DictCountingFamily()):
        layout = layout_of(family)
        space = layout.obs_space
        if isinstance(space, spaces.Dict):
            space = space[Layout.FLAG_KEY]
        assert isinstance(space, spaces.Box) and (space.low[-1], space.high[-1]) == (0.0, 1.0)

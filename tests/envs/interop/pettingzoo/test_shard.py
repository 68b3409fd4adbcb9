"""PettingZoo environments as slots: what stands where in a row, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.base import SlotError
from envs.interop.pettingzoo.shard import SeatsFamily, parts_of
from tests.envs.interop.pettingzoo.rounds import Rounds
from tests.envs.meta.played import Played


def test_the_rows_have_every_agents_numbers() -> None:
    family = SeatsFamily(Rounds, ("time",))
    played = Played(family, 2)
    played.reset([0, 1], [[3], [4]], [0, 0])
    rows: Any = played.step([0, 1], np.array([[1, 2, 1], [1, 1, 1]]))
    assert family.spec.info_names[:5] == ("a/reward", "a/terminated", "a/truncated", "a/alive", "a/time")
    assert rows.info[0].reshape(3, 5).tolist() == [[1, 0, 0, 1, 1], [2, 1, 0, 1, 1], [1, 0, 0, 1, 1]]
    assert rows.reward.tolist() == [4, 3]
    rows = played.step([0], np.array([[1, 0, 1]]))
    assert rows.info[0].reshape(3, 5)[1].tolist() == [0, 1, 0, 0, 0], "b has ended, and has no row"
    assert rows.obs["b/observation"][0] == 0


def test_an_observation_of_another_shape_is_an_error_of_its_slot() -> None:
    class Wrong(Rounds):
        def _obs(self) -> dict[str, Any]:
            return super()._obs() | {"a": np.zeros(self.time + 2, np.int16)}

    played = Played(SeatsFamily(Wrong), 2)
    played.reset([0, 1], [[0], [0]], [0, 0])
    with pytest.raises(SlotError, match=r"what a sees has the shape \(3,\), not \(2,\)"):
        played.step([1], np.array([[1, 1, 1]]))


def test_what_is_no_array_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="What a sees cannot be an array"):
        parts_of("a", spaces.Tuple([spaces.Discrete(2)]))

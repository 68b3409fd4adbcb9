"""AgentObs: the vector of what an agent sees, and a sentence where it does not fit its space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envs.interop.pettingzoo.agent_obs import AgentObs
from envs.interop.pettingzoo.game import GameError

BOARD = spaces.Dict({"observation": spaces.Box(0, 1, (2, 2), np.int8), "action_mask": spaces.MultiBinary(3)})


def test_a_board_is_flattened_and_its_mask_left_out() -> None:
    seen = AgentObs("a", BOARD)
    vector = seen.vector({"observation": np.eye(2, dtype=np.int8), "action_mask": np.ones(3, np.int8)})
    assert vector.tolist() == [1, 0, 0, 1] and vector.dtype == np.float32 and seen.box.shape == (4,)


def test_numbers_of_more_precision_are_taken() -> None:
    assert AgentObs("a", spaces.Box(-1, 1, (2,))).vector(np.array([0.5, -0.5])).tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([0.0, np.nan])),
        (spaces.Box(-1, 1, (2,)), np.zeros(3)),
        (spaces.Box(-1, 1, (2,)), None),
        (spaces.Discrete(3), 3),
        (BOARD, np.zeros(4)),
        (BOARD, {"action_mask": np.ones(3)}),
    ],
)
def test_what_is_not_of_the_space_is_refused_by_the_agents_name(space: Any, obs: Any) -> None:
    with pytest.raises(GameError, match=r"What agent_1 sees (is not in|cannot be read)"):
        AgentObs("agent_1", space).vector(obs)

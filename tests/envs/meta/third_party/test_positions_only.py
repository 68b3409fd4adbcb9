"""CartPole without its velocities: what is left are position and angle."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envs.meta.third_party.positions_only import PositionsOnly


def test_position_and_angle_are_left() -> None:
    whole, positions = gym.make("CartPole-v1"), PositionsOnly(gym.make("CartPole-v1"))
    # Gymnasium says of every wrapper that it is one.
    with pytest.warns(UserWarning, match="different from the unwrapped version"):
        check_env(positions, skip_render_check=True)
    np.testing.assert_array_equal(positions.reset(seed=3)[0], whole.reset(seed=3)[0][[0, 2]])
    for action in (1, 0, 1):
        found = positions.step(action)
        np.testing.assert_array_equal(found[0], whole.step(action)[0][[0, 2]])
        assert found[0] in positions.observation_space

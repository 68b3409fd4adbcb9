"""PositionsOnly: a cart and a pole whose velocities have to be remembered, by `env.wrappers`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class PositionsOnly(
    gym.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]], gym.utils.RecordConstructorArgs
):
    """CartPole-v1 without its two velocities: one row does not say which way anything moves."""

    # CartPole's numbers are position, velocity, angle, angular velocity.
    KEPT = (0, 2)

    def __init__(self, env: gym.Env[NDArray[np.float32], Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Box)
        low, high = (
            bound[list(self.KEPT)] for bound in (env.observation_space.low, env.observation_space.high)
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """[2] position and angle."""
        return observation[list(self.KEPT)]

"""Scripts for simple_push of mpe2: an agent that walks to its goal, and adversaries that are in its way.

The agent wants to be at its goal, one of two landmarks; the adversary does not know which one, and is paid
for keeping it away. Both see positions from where they stand. A script walks along the axis that is further
off, and stands still where it is close.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STAY, LEFT, RIGHT, DOWN, UP = range(5)
CLOSE = 0.05


def walker(obs: NDArray[Any], space: Any, rng: np.random.Generator) -> int:
    """The agent: straight to its goal."""
    return _towards(obs[2:4])


def guard(obs: NDArray[Any], space: Any, rng: np.random.Generator) -> int:
    """An adversary on the landmark that the agent is closer to."""
    landmarks, agent = obs[2:6].reshape(2, 2), obs[6:8]
    nearer = np.argmin(np.square(landmarks - agent).sum(axis=1))
    return _towards(landmarks[nearer])


def chaser(obs: NDArray[Any], space: Any, rng: np.random.Generator) -> int:
    """An adversary that runs into the agent."""
    return _towards(obs[6:8])


def _towards(place: NDArray[Any]) -> int:
    """The step that leads closer to a place, which is seen from here."""
    x, y = place
    if max(abs(x), abs(y)) < CLOSE:
        return STAY
    if abs(x) > abs(y):
        return RIGHT if x > 0 else LEFT
    return UP if y > 0 else DOWN

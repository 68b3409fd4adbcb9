"""What an agent of PettingZoo sees, as a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.interop.pettingzoo.game import GameError
from envs.interop.spaces import MASK_KEY, shortened


class AgentObs:
    """The vector of what one agent sees, without the mask that PettingZoo puts beside it."""

    def __init__(self, name: str, space: spaces.Space[Any]) -> None:
        self._name = name
        self._has_mask = isinstance(space, spaces.Dict) and set(space.spaces) == {"observation", MASK_KEY}
        self._space: Any = space["observation"] if self._has_mask else space  # pyright: ignore[reportIndexIssue]
        box = spaces.flatten_space(self._space) if self._space.is_np_flattenable else None
        if not isinstance(box, spaces.Box):
            raise TypeError(f"What {name} sees has no fixed size, so it cannot be flattened: {space}.")
        self.box = box

    def vector(self, obs: Any) -> NDArray[np.float32]:
        """The observation in a row of its own, if it is of its space."""
        try:
            seen = obs["observation"] if self._has_mask else obs
            is_right = self._contains(seen)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise GameError(f"What {self._name} sees cannot be read: {error!r}.") from error
        if not is_right:
            raise GameError(f"What {self._name} sees is not in {self._space}: {shortened(seen)}.")
        return np.asarray(spaces.flatten(self._space, seen)).astype(np.float32)

    def _contains(self, seen: Any) -> bool:
        """Whether it is of the space; numbers of more precision are, too, which many environments give."""
        space = self._space
        if isinstance(space, spaces.Box):
            return np.shape(seen) == space.shape and bool(((seen >= space.low) & (seen <= space.high)).all())
        return space.contains(seen)

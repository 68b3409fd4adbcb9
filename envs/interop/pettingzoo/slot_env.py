"""What a slot plays of a PettingZoo environment: vectors and masks, and nothing after the end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.interop.pettingzoo.actions import choices_of
from envs.interop.pettingzoo.agent_obs import AgentObs
from envs.interop.pettingzoo.ego import EgoWrapper
from envs.interop.pettingzoo.flatten import FlattenMultiAgentWrapper
from envs.interop.spaces import MASK_KEY

Row = tuple[Any, float, bool, bool, dict[str, Any]]


class SlotEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Either wrapper with observations that agents of ours read.

    An observation is a vector, a picture stays one; `masked` puts the mask beside it. The rewards of all
    agents of a joint step are in the info by name. After the end of an episode, a step changes nothing.
    """

    def __init__(self, env: EgoWrapper | FlattenMultiAgentWrapper, masked: bool) -> None:
        super().__init__(env)
        self._inner, self._masked = env, masked
        own = env.observation_space
        is_picture = isinstance(own, spaces.Box) and own.dtype == np.uint8 and len(own.shape) == 3
        is_joint = isinstance(env, FlattenMultiAgentWrapper)
        self._seen = None if is_picture or is_joint else AgentObs(env.seat, own)
        self._last: Row | None = None
        shown = own if self._seen is None else _in_float32(self._seen.box)
        if masked:
            mask = spaces.MultiBinary(sum(choices_of(env.action_space)))
            shown = spaces.Dict({"observation": shown, MASK_KEY: mask})
        self.observation_space = shown

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._last = None
        return self._shown(obs), info

    def step(self, action: Any) -> Row:
        """Play a step; after the end, the last row again without its reward."""
        if self._last is not None:
            return self._last
        obs, reward, terminated, truncated, info = self.env.step(action)
        numbers = {f"reward_{name}": paid for name, paid in info.get("rewards", {}).items()}
        row = self._shown(obs), float(reward), terminated, truncated, numbers
        if terminated or truncated:
            self._last = row[0], 0.0, terminated, truncated, {}
        return row

    def _shown(self, obs: Any) -> Any:
        shown = obs if self._seen is None else self._seen.vector(obs)
        if not self._masked:
            return shown
        return {"observation": shown, MASK_KEY: self._inner.action_masks().astype(np.int8)}


def _in_float32(box: spaces.Box) -> spaces.Box:
    """The Box of the same numbers as float32."""
    return spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)

"""FlattenMultiAgentWrapper: all agents of a PettingZoo environment as one agent of Gymnasium."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.interop.pettingzoo.actions import JointActions, choices_of
from envs.interop.pettingzoo.game import GameStep, game_of
from envs.interop.spaces import MASK_KEY


class FlattenMultiAgentWrapper(gymnasium.Env[NDArray[np.float32], NDArray[Any]]):
    """An AECEnv or a ParallelEnv whose agents are all played by one.

        env = FlattenMultiAgentWrapper(simple_spread_v3.parallel_env())

    Observation: what each agent sees, flattened and side by side (zeros once it is out), then for each agent
    whether its choice counts in the next step. Action: the choices of all, a MultiDiscrete or a Box; those
    that do not count are ignored. Reward: the agents' mean, or their sum; `info["rewards"]` has each one's
    and `info["infos"]` their infos. It ends when all agents have; truncated, if a limit cut one of the last.
    An AECEnv is played a cycle at a time where its metadata say `is_parallelizable`, else a turn at a time.
    `action_masks()` is what MaskablePPO of sb3-contrib asks for.
    """

    def __init__(self, env: Any, reward: Literal["mean", "sum"] = "mean") -> None:
        if reward not in ("mean", "sum"):
            raise ValueError(f"reward is 'mean' or 'sum', not {reward!r}.")
        self.env, self._game = env, game_of(env)
        self.possible_agents = list(self._game.agents)
        self._share = 1.0 / len(self.possible_agents) if reward == "mean" else 1.0
        self._seen = {name: _without_mask(space) for name, space in self._game.observation_spaces.items()}
        self._boxes = {name: _flat_box(name, space) for name, space in self._seen.items()}
        flags = np.ones(len(self.possible_agents), np.float32)
        # A dead agent sees zeros, so they are in the space.
        low = [np.minimum(box.low, 0) for box in self._boxes.values()]
        high = [np.maximum(box.high, 0) for box in self._boxes.values()]
        self.observation_space = spaces.Box(
            np.concatenate([*low, 0 * flags]).astype(np.float32),
            np.concatenate([*high, flags]).astype(np.float32),
            dtype=np.float32,
        )
        self._actions = JointActions(self._game.action_spaces)
        self.action_space = self._actions.space
        self.metadata = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return self._row(self._game.reset(seed, options))

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play a step for all agents."""
        played = self._game.step(self._actions.split(action))
        obs, info = self._row(played)
        return obs, sum(played.rewards.values()) * self._share, *played.ends(), info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which choices are allowed, agent after agent; only the first one where none counts."""
        return np.concatenate([self._mask(name) for name in self.possible_agents])

    def render(self) -> Any:
        """The environment's own picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _row(self, played: GameStep) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The observation and the info of a step."""
        parts: list[Any] = []
        for name, space in self._seen.items():
            if name in played.obs:
                seen = played.obs[name]
                seen = seen["observation"] if space is not self._game.observation_spaces[name] else seen
                parts.append(spaces.flatten(space, seen))
            else:
                parts.append(np.zeros(self._boxes[name].shape))
        counts = [name in played.on_turn for name in self.possible_agents]
        info = {"rewards": dict(played.rewards), "infos": dict(played.infos)}
        return np.concatenate([*parts, counts]).astype(np.float32), info

    def _mask(self, name: str) -> NDArray[np.bool_]:
        """The allowed choices of one agent."""
        space, now = self._game.action_spaces[name], self._game.now
        counts = name in now.on_turn
        if isinstance(space, spaces.Discrete) and counts:
            seen = now.obs[name]
            given = seen.get(MASK_KEY) if isinstance(seen, dict) else now.infos[name].get(MASK_KEY)
            return np.ones(int(space.n), np.bool_) if given is None else np.asarray(given).astype(np.bool_)
        masks = [np.arange(n) == 0 for n in choices_of(space)]
        return np.concatenate([np.ones_like(mask) if counts else mask for mask in masks])


def _without_mask(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """What an agent sees, without the mask of its actions that PettingZoo puts beside it."""
    if isinstance(space, spaces.Dict) and set(space.spaces) == {"observation", MASK_KEY}:
        return space["observation"]
    return space


def _flat_box(name: str, space: spaces.Space[Any]) -> spaces.Box:
    """The Box of a flattened observation."""
    flat = spaces.flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box):
        raise TypeError(f"What {name} sees has no fixed size, so it cannot be flattened: {space}.")
    return flat

"""FlattenMultiAgentWrapper: all agents of a PettingZoo environment as one agent of Gymnasium."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.interop.pettingzoo.actions import JointActions, allowed
from envs.interop.pettingzoo.agent_obs import AgentObs
from envs.interop.pettingzoo.game import GameStep, game_of


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
        self._seen = {name: AgentObs(name, space) for name, space in self._game.observation_spaces.items()}
        flags = np.ones(len(self.possible_agents), np.float32)
        # A dead agent sees zeros, so they are in the space.
        low = [np.minimum(seen.box.low, 0) for seen in self._seen.values()]
        high = [np.maximum(seen.box.high, 0) for seen in self._seen.values()]
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
        now = self._game.now
        return np.concatenate(
            [
                allowed(space, now.obs.get(name), now.infos.get(name), name in now.on_turn)
                for name, space in self._game.action_spaces.items()
            ]
        )

    def render(self) -> Any:
        """The environment's own picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _row(self, played: GameStep) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The observation and the info of a step."""
        parts: list[Any] = [
            seen.vector(played.obs[name]) if name in played.obs else np.zeros(seen.box.shape)
            for name, seen in self._seen.items()
        ]
        counts = [name in played.on_turn for name in self.possible_agents]
        info = {"rewards": dict(played.rewards), "infos": dict(played.infos)}
        return np.concatenate([*parts, counts]).astype(np.float32), info

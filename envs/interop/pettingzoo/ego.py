"""EgoWrapper: one agent of a PettingZoo environment acts, beside partners whose type is the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.interop.pettingzoo.actions import allowed, own_mask
from envs.interop.pettingzoo.game import Game, GameError, GameStep, game_of
from envs.interop.spaces import MASK_KEY
from utils.options import nearest

# So many turns of partners may pass until the agent is on turn; it is beyond what any game needs.
MOST_TURNS = 1_000
# So many games that are over before the agent's first turn are begun anew, with other seeds.
MOST_STARTS = 100
# (what the partner sees, its action space, a generator of the episode) -> its action.
Partner = Callable[[Any, spaces.Space[Any], np.random.Generator], Any]


def random_partner(obs: Any, space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    """A partner that plays at random, among the actions that its mask allows."""
    if isinstance(space, spaces.Discrete):
        mask = obs.get(MASK_KEY) if isinstance(obs, dict) else None
        return int(space.start) + int(
            rng.choice(np.arange(space.n) if mask is None else np.flatnonzero(mask))
        )
    if isinstance(space, spaces.MultiDiscrete):
        return space.start + rng.integers(space.nvec)
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high).astype(space.dtype)
    raise TypeError(f"The random partner knows Discrete, MultiDiscrete and Box actions, not {space}.")


class EgoWrapper(gymnasium.Env[Any, Any]):
    """One agent acts, and partners play the others inside of the step.

    A row is the agent's own turn: what it sees, and all that it was paid since its previous one. The episode
    ends for it when it is out of the game, or when all others are and the game is over; a game that is over
    before its first turn is begun anew. Which of `partners`
    plays is the task: `reset(options={"task": number})`, or drawn from the seed. Their draws are of the
    episode's seed, so an episode can be played again. With the task (number, seed) the game's own seed is
    that one, in every episode.
    """

    def __init__(
        self, env: Any, seat: str | None = None, partners: Sequence[Partner] = (random_partner,)
    ) -> None:
        self.env, self._game = env, game_of(env, by_turns=True)
        self.seat = self._game.agents[0] if seat is None else seat
        if self.seat not in self._game.agents:
            raise ValueError(f"There is no seat {seat!r}.{nearest(str(seat), self._game.agents)}")
        self.partners = list(partners)
        self.observation_space = self._game.observation_spaces[self.seat]
        self.action_space = self._game.action_spaces[self.seat]
        self.metadata = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)

    def sample_tasks(self, n: int) -> list[int]:
        """So many tasks: the numbers of partners."""
        return self.np_random.integers(len(self.partners), size=n).tolist()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and play it to the agent's first turn."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        number, *world = np.ravel(self.sample_tasks(1) if task is None else task).astype(np.int64).tolist()
        if not 0 <= number < len(self.partners):
            raise ValueError(f"A task is the number of a partner, 0 to {len(self.partners) - 1}, not {task}.")
        self._partner = self.partners[number]
        for _ in range(MOST_STARTS):
            drawn = int(self.np_random.integers(2**31))
            first = self._game.reset(world[0] if world else drawn)
            obs, _, terminated, truncated, info = self._to_own_turn(first)
            if not (terminated or truncated):
                return obs, info
        raise GameError(f"{self.seat} was out before its first turn, {MOST_STARTS} times in a row.")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The agent's turn, and then all turns until its next one."""
        return self._to_own_turn(self._game.step(self._choices(self._game, action)))

    def action_masks(self) -> NDArray[np.bool_]:
        """Which choices are allowed, as MaskablePPO of sb3-contrib asks for it."""
        now = self._game.now
        return allowed(self._game.action_spaces[self.seat], now.obs[self.seat], now.infos[self.seat])

    def render(self) -> Any:
        """The environment's own picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _to_own_turn(self, played: GameStep) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Let the partners play until it is the agent's turn, or until it is out."""
        seat, reward, turns = self.seat, played.rewards.get(self.seat, 0.0), 0
        while seat not in played.on_turn and played.on_turn and not _ended(played, seat):
            turns += 1
            if turns > MOST_TURNS:
                raise GameError(f"{seat} is not on turn, though its partners have played {turns - 1} turns.")
            played = self._game.step(self._choices(self._game, None))
            reward += played.rewards.get(seat, 0.0)
        terminated = played.terminations[seat]
        return (
            played.obs[seat],
            reward,
            terminated,
            played.truncations[seat] and not terminated,
            played.infos[seat],
        )

    def _choices(self, game: Game, own: Any) -> dict[str, Any]:
        """The choices of all whose turn it is."""
        return {name: own if name == self.seat else self._partners_choice(name) for name in game.now.on_turn}

    def _partners_choice(self, name: str) -> Any:
        """What the partner does in the place of this agent; it has to be allowed."""
        space, now = self._game.action_spaces[name], self._game.now
        action = self._partner(now.obs[name], space, self.np_random)
        if not space.contains(action):
            raise GameError(f"{name} is played by a partner, whose action is not in {space}: {action!r}.")
        mask = own_mask(now.obs[name], now.infos[name]) if isinstance(space, spaces.Discrete) else None
        if mask is not None and not mask[int(action) - int(space.start)]:
            raise GameError(f"{name} is played by a partner, whose action {action} its mask forbids.")
        return action


def _ended(played: GameStep, name: str) -> bool:
    return played.terminations[name] or played.truncations[name]

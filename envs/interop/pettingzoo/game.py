"""One PettingZoo environment, in turns (AEC) or at once (Parallel), played a step at a time for all agents.

A step of a ParallelEnv is its own. Of an AECEnv that says `is_parallelizable` a step is a cycle, one turn of
each living agent; of any other AECEnv it is one turn, and only the choice of the agent on turn counts.
The rewards of a step are the sums over its turns, so nothing that an agent is paid between its turns is lost.
An agent that ends has its last observation in that step, and is absent afterwards.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class GameError(RuntimeError):
    """The environment has broken PettingZoo's contract; one sentence that names the agent."""


@dataclass
class GameStep:
    """What one step has brought, by the names of the agents that were alive before it."""

    obs: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    terminations: dict[str, bool] = field(default_factory=dict)
    truncations: dict[str, bool] = field(default_factory=dict)
    infos: dict[str, Any] = field(default_factory=dict)
    # Whose choices count in the next step.
    on_turn: tuple[str, ...] = ()

    def ends(self) -> tuple[bool, bool]:
        """Whether the game was terminated or truncated: truncated, if a limit cut one of its last agents."""
        if self.on_turn:
            return False, False
        cut = any(self.truncations[name] and not self.terminations[name] for name in self.truncations)
        return not cut, cut

    def put(self, name: str, obs: Any, terminated: Any, truncated: Any, info: Any) -> None:
        """What an agent sees, and whether it has ended."""
        self.obs[name], self.infos[name] = obs, info
        self.terminations[name], self.truncations[name] = bool(terminated), bool(truncated)

    def pay(self, name: str, reward: Any) -> None:
        """Add to the reward of an agent."""
        if not math.isfinite(reward):
            raise GameError(f"The reward of {name} is not finite: {reward}.")
        self.rewards[name] = self.rewards.get(name, 0.0) + float(reward)


class Game(ABC):
    """One environment: begin an episode, play steps."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.agents: tuple[str, ...] = tuple(env.possible_agents)
        self.observation_spaces = {name: env.observation_space(name) for name in self.agents}
        self.action_spaces = {name: env.action_space(name) for name in self.agents}
        self.now = GameStep()

    @abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> GameStep:
        """Begin an episode."""

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> GameStep:
        """Play a step; choices of agents that are not on turn are ignored."""


def game_of(env: Any, by_turns: bool = False) -> Game:
    """The game of an AECEnv or of a ParallelEnv, told apart by what they can do.

    With `by_turns` every step of an AECEnv is one turn, also where it can be played in cycles.
    """
    if not hasattr(env, "possible_agents"):
        raise TypeError(f"{type(env).__name__} has no possible_agents: give an AECEnv or a ParallelEnv.")
    if not callable(getattr(env, "agent_iter", None)):
        return ParallelGame(env)
    return TurnGame(env, in_cycles=not by_turns and bool(env.metadata.get("is_parallelizable", False)))


class ParallelGame(Game):
    """A ParallelEnv."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> GameStep:
        obs, infos = self.env.reset(seed=seed, options=options)
        self.now = GameStep(on_turn=tuple(self.env.agents))
        for name in self.env.agents:
            self.now.put(name, _of(obs, name, "observation"), False, False, infos.get(name, {}))
        return self.now

    def step(self, actions: Mapping[str, Any]) -> GameStep:
        living = self.now.on_turn
        chosen = {name: actions[name] for name in living}
        obs, rewards, terminations, truncations, infos = self.env.step(chosen)
        self.now = GameStep(on_turn=tuple(self.env.agents))
        now = self.now
        for name in living:
            now.pay(name, _of(rewards, name, "reward"))
            seen, terminated = _of(obs, name, "observation"), _of(terminations, name, "termination")
            now.put(name, seen, terminated, _of(truncations, name, "truncation"), infos.get(name, {}))
        if now.on_turn == living and not any(now.terminations.values()) and not any(now.truncations.values()):
            return now
        going = [name for name in living if not (now.terminations[name] or now.truncations[name])]
        _check_returned(now.on_turn, going)
        for name in going:
            if name not in now.on_turn:
                raise GameError(f"{name} is not in `agents` any more, and neither terminated nor truncated.")
        return now


class TurnGame(Game):
    """An AECEnv: a step is a cycle, or a turn."""

    def __init__(self, env: Any, in_cycles: bool) -> None:
        super().__init__(env)
        self._in_cycles = in_cycles
        # Who has ended; such an agent may stay in `agents` until it is on turn again.
        self._ended: set[str] = set()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> GameStep:
        self.env.reset(seed=seed, options=options)
        self._ended.clear()
        return self._seen(GameStep())

    def step(self, actions: Mapping[str, Any]) -> GameStep:
        env, played = self.env, GameStep()
        before = tuple(env.agents)
        for name in before:
            if name not in self._ended:
                played.pay(name, 0.0)
        waiting = set(before) if self._in_cycles else {env.agent_selection}
        # The dead are on turn once more, and leave; a turn of one who has played already is the next step's.
        while env.agents and (env.agent_selection in waiting or self._is_dead(env.agent_selection)):
            name = env.agent_selection
            if self._is_dead(name):
                self._take_leave(name, played)
            else:
                env.step(actions[name])
                for paid in env.agents:
                    played.pay(paid, env.rewards[paid])
            waiting.discard(name)
        _check_returned(tuple(env.agents), before)
        return self._seen(played)

    def _is_dead(self, name: str) -> bool:
        return bool(self.env.terminations[name] or self.env.truncations[name])

    def _take_leave(self, name: str, played: GameStep) -> None:
        """The last observation of an agent, and the None that takes it out of the game."""
        before = tuple(self.env.agents)
        self._put(name, played)
        self.env.step(None)
        if name in self.env.agents:
            raise GameError(f"{name} has ended, but its step(None) does not take it out of `agents`.")
        _check_returned(tuple(self.env.agents), before)

    def _put(self, name: str, played: GameStep) -> None:
        """What an agent sees now; one that has ended says so once."""
        env = self.env
        if name in self._ended:
            return
        flags = env.terminations[name], env.truncations[name]
        played.put(name, env.observe(name), *flags, env.infos[name])
        if any(flags):
            self._ended.add(name)

    def _seen(self, played: GameStep) -> GameStep:
        """Adds what is seen after the turns of this step."""
        env = self.env
        for name in env.agents:
            self._put(name, played)
        living = tuple(name for name in env.agents if name not in self._ended)
        played.on_turn = (
            living if self._in_cycles else tuple(name for name in living if name == env.agent_selection)
        )
        self.now = played
        return played


def _of(values: Mapping[str, Any], name: str, what: str) -> Any:
    """What an environment says of a living agent."""
    # Rewards may be a defaultdict, which knows every name.
    try:
        return values[name]
    except KeyError:
        raise GameError(f"The environment gives no {what} of {name}, which is alive.") from None


def _check_returned(now: Sequence[str], may_be_there: Sequence[str]) -> None:
    """Refuse agents that were dead."""
    returned = [name for name in now if name not in may_be_there]
    if returned:
        raise GameError(f"{returned[0]} was out of the episode and is in `agents` again.")

"""Games with random rules, turns, rewards and deaths, which need no package: in turns and at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


class Randomly:
    """What both have: agents, spaces, and draws of the episode's seed."""

    def __init__(self, agents: int = 3, deadliness: float = 0.0, limit: int = 0) -> None:
        self.possible_agents = [f"agent_{number}" for number in range(agents)]
        self.agents: list[str] = []
        self.deadliness, self.limit = deadliness, limit
        self._seen = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self._acts = spaces.Discrete(3)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts

    def begin(self, seed: int | None) -> None:
        self.agents, self.rng = list(self.possible_agents), np.random.default_rng(seed)
        self.steps, self.said, self.luck = 0, 0, float(self.rng.random())
        # Everything that an agent was ever paid.
        self.paid = dict.fromkeys(self.possible_agents, 0.0)

    def seen_by(self, agent: str) -> Any:
        number = self.possible_agents.index(agent)
        return np.array([self.steps, self.said, self.luck, number], np.float32)

    def drawn_rewards(self, living: list[str], action: int) -> dict[str, float]:
        # Quarters, so that sums are exact in any order.
        rewards = {name: float(self.rng.integers(-8, 9)) / 4 + action for name in living}
        for name, reward in rewards.items():
            self.paid[name] += reward
        return rewards

    def drawn_deaths(self, living: list[str]) -> list[str]:
        return [name for name in living if self.rng.random() < self.deadliness]

    def is_over_limit(self) -> bool:
        return bool(self.limit) and self.steps >= self.limit

    def close(self) -> None: ...


class RandomTurns(Randomly):
    """In turns, after PettingZoo's contract: who has ended is on turn once more at once, and leaves by None.

    Without `in_cycles` the next one on turn is drawn, too, and agents may die in the turns of others.
    """

    def __init__(self, in_cycles: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.metadata = {"name": "random_turns_v0", "is_parallelizable": in_cycles, "render_modes": []}
        self.in_cycles, self.render_mode = in_cycles, None

    def agent_iter(self, max_iter: int = 2**63) -> Any:
        while self.agents and max_iter > 0:
            yield self.agent_selection
            max_iter -= 1

    def observe(self, agent: str) -> Any:
        return self.seen_by(agent)

    def last(self, observe: bool = True) -> Any:
        name = self.agent_selection
        seen = self.observe(name) if observe else None
        flags = self.terminations[name], self.truncations[name]
        return seen, self._cumulative_rewards[name], *flags, self.infos[name]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin(seed)
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0.0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {name: {} for name in self.agents}
        self.agent_selection, self._interrupted = self.agents[0], ""

    def step(self, action: Any) -> None:
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            return self._leave(name, action)
        self._cumulative_rewards[name] = 0.0
        living = [one for one in self.agents if not self.terminations[one]]
        last_of_cycle = name == living[-1]
        self.steps, self.said = self.steps + 1, self.said + int(action)
        self.rewards = self.drawn_rewards(living, int(action))
        if last_of_cycle or not self.in_cycles:
            for one in self.drawn_deaths(living):
                self.terminations[one] = True
            if self.is_over_limit():
                self.truncations = {one: not self.terminations[one] for one in self.agents}
        for one, reward in self.rewards.items():
            self._cumulative_rewards[one] += reward
        self._interrupted = (
            living[(living.index(name) + 1) % len(living)] if self.in_cycles else str(self.rng.choice(living))
        )
        self._select()
        return None

    def _leave(self, name: str, action: Any) -> None:
        assert action is None, "whoever has ended can only leave"
        self.agents.remove(name)
        for told in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
            del told[name]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._select()

    def _select(self) -> None:
        """The dead first; then whose turn it would have been, or who comes after."""
        dead = [one for one in self.agents if self.terminations[one] or self.truncations[one]]
        if dead:
            self.agent_selection = dead[0]
        elif self.agents:
            start = self.possible_agents.index(self._interrupted)
            order = self.possible_agents[start:] + self.possible_agents[:start]
            self.agent_selection = next(one for one in order if one in self.agents)


class RandomAtOnce(Randomly):
    """A ParallelEnv of the same kind."""

    render_mode = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.metadata = {"name": "random_at_once_v0", "render_modes": []}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.begin(seed)
        return {name: self.seen_by(name) for name in self.agents}, {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        living = self.agents
        assert list(actions) == living, "all who live act, and nobody else"
        self.steps, said = self.steps + 1, sum(map(int, actions.values()))
        self.said += said
        rewards = self.drawn_rewards(living, said)
        dead = self.drawn_deaths(living)
        cut = self.is_over_limit()
        self.agents = [] if cut else [name for name in living if name not in dead]
        return (
            {name: self.seen_by(name) for name in living},
            rewards,
            {name: name in dead for name in living},
            {name: cut and name not in dead for name in living},
            {name: {} for name in living},
        )


def turns(**options: Any) -> RandomTurns:
    """The game in turns, by its name."""
    return RandomTurns(**options)


def at_once(**options: Any) -> RandomAtOnce:
    """The ParallelEnv, by its name."""
    return RandomAtOnce(**options)


def first(obs: Any, space: Any, rng: np.random.Generator) -> int:
    """A partner that always takes its first choice."""
    return 0

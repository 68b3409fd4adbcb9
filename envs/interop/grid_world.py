"""The grid world for PettingZoo: agents that take turns (`env`), or act at once (`parallel_env`).

    from envs.interop import grid_world

    env = grid_world.env(max_cycles=12)             an AECEnv
    env = grid_world.parallel_env(max_cycles=12)    a ParallelEnv
    env = grid_world.GridWorldEnvMultiAgent()       the AECEnv, under the name of its class

The game is that of the family `GridWorldMultiAgent` (envs/meta/agents/grid_world_multi_agent.py), which says
what its options mean. A cycle of a ParallelEnv is a cycle of turns: with the same actions both give the same
rewards and the same ends. Nothing but the package pettingzoo is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv  # pyright: ignore

from envs.meta.agents.grid_board import MOVES, PLACE, SHARED, VIEW, Board
from envs.meta.agents.grid_world_multi_agent import GridWorldMultiAgent, GridWorldMultiAgentConfig, picture
from utils.options import from_keywords, nearest

GridObs = dict[str, NDArray[Any]]
RENDER_MODES = ("rgb_array", "ansi", "human")
METADATA = {"render_modes": list(RENDER_MODES), "name": "grid_world_v1", "render_fps": 4}


class GridGame:
    """One game of named agents: what both faces share."""

    def __init__(self, options: Mapping[str, Any], render_mode: str | None) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise ValueError(
                f"There is no render_mode={render_mode!r}.{nearest(str(render_mode), RENDER_MODES)}"
            )
        config = from_keywords(GridWorldMultiAgentConfig, "grid_world", options)
        self.family = GridWorldMultiAgent(config)
        self.board = Board(1, self.family.rules)
        self.names = [f"agent_{seat}" for seat in range(config.agents)]
        place = spaces.Box(-1, config.size - 1, (2,), np.int64)
        parts: dict[str, spaces.Space[Any]] = {
            "agent": place,
            "fov": spaces.Box(0, 1, (3, VIEW, VIEW), np.int8),
        }
        if config.shared_target:
            parts["target"] = spaces.Box(-1, config.size - 1, (2,), np.int64)
        # PettingZoo wants one space object for each agent, the same at each call.
        self.observation_spaces = {name: spaces.Dict(parts) for name in self.names}
        self.action_spaces = {name: spaces.Discrete(len(MOVES)) for name in self.names}
        cells = config.size**2
        self.state_space = spaces.Box(-1, config.size - 1, (2 * config.agents + 2 + cells,), np.int64)
        self._rng = np.random.default_rng()

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begin a game of the task in the options, or of a new one; options of others are let through."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        tasks = self.family.sample_tasks(self._rng, 1, "train")
        seeds = self._rng.integers(2**63, size=1).astype(np.uint64)
        given = (options or {}).get("task")
        if given is not None:
            tasks = np.asarray(given, np.float64).reshape(1, -1)
            if tasks.shape[1] != self.family.spec.task_dim:
                raise ValueError(f"A task has {self.family.spec.task_dim} numbers, not {tasks.shape[1]}.")
        self.family.set_task(self.board, np.array([0]), tasks, seeds)

    def turn(self, name: str, action: Any) -> float:
        """The reward of a living agent for an action."""
        if not self.action_spaces[name].contains(action):
            raise ValueError(f"{name} has the actions 0 to {len(MOVES) - 1}, not {action!r}.")
        return float(self.board.turn(slice(None), self.names.index(name), np.array([int(action)]))[0])

    def lives(self, name: str) -> bool:
        """Whether an agent is on the board."""
        return bool(self.board.alive(slice(None))[0, self.names.index(name)])

    def observe(self, name: str) -> GridObs:
        """What an agent sees now; a dead one sees nothing, from nowhere."""
        seat, board = self.names.index(name), self.board
        planes = board.observe(slice(None))[0, seat, PLACE:-SHARED]
        seen: GridObs = {
            "agent": self._place(board.agents[0, seat]),
            "fov": planes.reshape(3, VIEW, VIEW).astype(np.int8),
        }
        if self.family.config.shared_target:
            seen["target"] = self._place(board.shared[0] if self.lives(name) else board.nowhere)
        return seen

    def info(self, name: str) -> dict[str, Any]:
        """Whether an agent has the target in view."""
        return {"sees_target": bool(self.board.sees(slice(None))[0, self.names.index(name)])}

    def state(self) -> NDArray[np.int64]:
        """The places of all agents and of the target, and which cells are obstacles."""
        board, size = self.board, self.family.config.size
        cells = board.cells_of(np.stack(np.divmod(np.arange(size**2), size), 1))
        places = [self._place(cell) for cell in (*board.agents[0], board.target[0])]
        return np.concatenate([*places, board.blocked(slice(None), cells[None])[0].astype(np.int64)])

    def _place(self, cell: Any) -> NDArray[np.int64]:
        """[x, y] of a cell, or [-1, -1] of nowhere."""
        if cell == self.board.nowhere:
            return np.full(2, -1)
        return np.array([self.board.x[cell], self.board.y[cell]])

    def text(self) -> str:
        """The board in letters: agents by their numbers, T the target, # obstacles; y upwards."""
        size = self.family.config.size
        state = self.state()
        letters = np.where(state[-(size**2) :] > 0, "#", ".").reshape(size, size)
        *agents, target = state[: -(size**2)].reshape(-1, 2)
        letters[tuple(target)] = "T"
        for number, place in enumerate(agents):
            if place[0] >= 0:
                letters[tuple(place)] = str(number)
        return "\n".join("".join(row) for row in letters.T[::-1]) + "\n"

    def render(self, render_mode: str | None) -> NDArray[np.uint8] | str | None:
        """A picture, the board in letters, or (human) these letters on the terminal."""
        if render_mode == "rgb_array":
            return picture(self.board, 0)
        if render_mode == "ansi":
            return self.text()
        if render_mode == "human":
            sys.stdout.write(self.text())  # it needs no screen
        return None


class _Face:
    """What PettingZoo calls alike on both kinds of environments."""

    game: GridGame
    render_mode: str | None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The space of what an agent sees."""
        return self.game.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Five moves."""
        return self.game.action_spaces[agent]

    @property
    def state_space(self) -> spaces.Space[Any]:
        """The space of `state`."""
        return self.game.state_space

    def state(self) -> NDArray[np.int64]:
        """All there is to know, for critics of several agents."""
        return self.game.state()

    def render(self) -> NDArray[np.uint8] | str | None:
        """What `render_mode` says."""
        return self.game.render(self.render_mode)

    def close(self) -> None:
        """Nothing is held open."""


class GridWorldEnvMultiAgent(_Face, AECEnv[str, Any, Any]):  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
    """The grid world in turns: agent_0, agent_1, ..., and then the target."""

    def __init__(self, max_cycles: int = 12, render_mode: str | None = None, **options: Any) -> None:
        super().__init__()
        self.game = GridGame(options, render_mode)
        self.max_cycles, self.render_mode = max_cycles, render_mode
        # A death in the middle of a cycle is what PettingZoo's own conversion cannot do.
        deaths = self.game.family.config.death_on_sight
        self.metadata = {**METADATA, "is_parallelizable": not deaths}
        self.possible_agents = list(self.game.names)
        self.agents: list[str] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a game; `options={"task": ...}` says which."""
        self.game.reset(seed, options)
        self.agents = list(self.possible_agents)
        self.rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {name: self.game.info(name) for name in self.agents}
        self._time = 0
        self._waiting = list(self.agents)
        self.agent_selection = self._waiting[0]
        self._skip_agent_selection = None

    def observe(self, agent: str) -> GridObs:
        """What an agent sees now."""
        return self.game.observe(agent)

    def step(self, action: Any) -> None:
        """The turn of `agent_selection`; that of one whose part is over is None, and takes it away."""
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            if action is not None:
                raise ValueError(f"{name} is out of the episode: its only action is None, not {action!r}.")
            self._was_dead_step(None)
            return
        self._cumulative_rewards[name] = 0.0
        self._clear_rewards()
        self.rewards[name] = self.game.turn(name, action)
        self.terminations[name] = not self.game.lives(name)
        self._pass_on()
        self.infos = {one: self.game.info(one) for one in self.agents}
        self._accumulate_rewards()
        # Whoever died is selected once more, so that it is given its last reward.
        self._deads_step_first()
        if self.render_mode == "human":
            self.render()

    def _pass_on(self) -> None:
        """The next turn is that of the next living agent; after the last one the cycle is over."""
        living = [one for one in self.agents if not self.terminations[one]]
        self._waiting = [one for one in self._waiting[1:] if one in living]
        if not self._waiting:
            self.game.board.end_cycle(slice(None))
            self._time += 1
            self._waiting = living
            if self._time >= self.max_cycles:
                self.truncations |= dict.fromkeys(living, True)
        if self._waiting:
            self.agent_selection = self._waiting[0]


class GridWorldParallelEnv(_Face, ParallelEnv[str, Any, Any]):  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
    """The grid world in cycles: the actions of all agents at once, taken in their order."""

    def __init__(self, max_cycles: int = 12, render_mode: str | None = None, **options: Any) -> None:
        self.game = GridGame(options, render_mode)
        self.max_cycles, self.render_mode, self.metadata = max_cycles, render_mode, dict(METADATA)
        self.possible_agents = list(self.game.names)
        self.agents: list[str] = []

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, GridObs], dict[str, dict[str, Any]]]:
        """Begin a game; `options={"task": ...}` says which."""
        self.game.reset(seed, options)
        self.agents, self._time = list(self.possible_agents), 0
        return self._observations(), {name: self.game.info(name) for name in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, GridObs],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """A cycle; `actions` has one for every agent in `agents`, and for nobody else."""
        for name in actions:
            if name not in self.agents:
                raise ValueError(
                    f"{name} has no turn: the agents of now are {', '.join(self.agents) or 'none'}."
                )
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise ValueError(f"{missing[0]} has a turn, and no action was given for it.")
        rewards = {name: self.game.turn(name, actions[name]) for name in self.agents}
        self.game.board.end_cycle(slice(None))
        self._time += 1

        # The last row of an agent is in the dicts of the step in which it ends; it is absent afterwards.
        terminated = {name: not self.game.lives(name) for name in self.agents}
        over = self._time >= self.max_cycles
        truncated = {name: over and not terminated[name] for name in self.agents}
        observations, infos = self._observations(), {name: self.game.info(name) for name in self.agents}
        self.agents = [name for name in self.agents if not (terminated[name] or truncated[name])]
        if self.render_mode == "human":
            self.render()
        return observations, rewards, terminated, truncated, infos

    def _observations(self) -> dict[str, GridObs]:
        return {name: self.game.observe(name) for name in self.agents}


# As PettingZoo's own modules name them.
env = GridWorldEnvMultiAgent
parallel_env = GridWorldParallelEnv

"""GridWorldMultiAgent: agents on a grid look for a hidden target, together or beside an unknown partner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.interop.spaces import MASK_KEY
from envs.meta.agents.grid_board import FEATURES, MOVES, SIGHT, STAY, Board, Boards, GridRules
from envs.meta.agents.grid_scripts import Partner, partner_actions, watching_actions
from envs.meta.kernels import checked_choices, index_of, split_choices, split_uniforms
from envs.meta.pictures import GOAL, GROUND, HINT, ROBOT, WALL, Colour, tiles
from utils.options import OptionError, option

# Layouts are numbered below this, as exact float64 numbers.
LAYOUTS = 2**32


class SeatsPlayed(Enum):
    """Which agents learn: all as one (joint), or the first beside partners of an unknown type (ego)."""

    joint = "joint"
    ego = "ego"


class HeldOut(Enum):
    """A type of partner that only tests have."""

    none = "none"
    scout = "scout"
    sweeper = "sweeper"
    idle = "idle"
    wanderer = "wanderer"


@dataclass
class GridWorldMultiAgentConfig(EnvConfig):
    """Options of GridWorldMultiAgent."""

    family: str = "GridWorldMultiAgent"
    max_episode_steps: int = option(12, "H: cycles of an episode; in each every agent has a turn", low=1)
    mode: SeatsPlayed = option(
        SeatsPlayed.joint, "joint: one policy plays all agents; ego: it plays the first, partners the others"
    )
    size: int = option(9, "rows and columns of the grid", low=7, high=20)
    agents: int = option(2, "how many agents there are", low=2, high=4)
    shared_target: bool = option(True, "tell everybody at the end of a cycle where anybody sees the target")
    obstacles: int = option(0, "rectangles in the way, which belong to the task", low=0, high=20)
    target_speed: float = option(0.0, "the probability of a step of the target in a cycle", low=0, high=1)
    closeness_cost: float = option(0.5, "what is lost close to the target, and of the 1 for seeing it", low=0)
    together: bool = option(False, "seeing the target counts only while two agents see it")
    death_on_sight: bool = option(False, "an agent that comes close to the target is out of the episode")
    held_out: HeldOut = option(HeldOut.none, "the type of partner that training leaves out (mode=ego)")


class GridWorldMultiAgent(TaskFamily):
    """Agents on a grid look for a hidden target, and are best off where they just see it.

    Task: [home x, home y]: the target's cell, at least three moves of a king away from every start; with
    `obstacles` a third number, the seed of their layout; in mode=ego a last one, the type of the partners: 0
    scout (it searches, and stays where it sees the target), 1 sweeper (it searches and never stops), 2 idle,
    3 wanderer (random moves). Everything is kept for the trial. Observation of an agent, 80 numbers from 0 to
    1: its cell; three planes of the 5 x 5 cells around it (outside or obstacle, other agent, target); and
    whether anybody saw the target at the end of the last cycle, and where (`shared_target`). Action of an
    agent: +x, +y, -x, -y, stay; it stays where a move would lead out, into an obstacle or onto an agent. In a
    cycle the agents move one after the other, and then the target, which stays at home unless it has a
    `target_speed`. Agents start in opposite corners of the 9 x 9 grid.

    Reward of an agent, after its turn: -0.5 within one king's move of the target, 0.5 within two (it is in
    view), else -0.01. Terminated: when no agent is left, which only `death_on_sight` can do. H=12 cycles,
    k=2. Info: target_x, target_y, seen (somebody sees the target), success (all agents are at the edge of
    their view), and the reward of each agent.

    mode=joint: observations side by side, then who is alive; an action for each agent; the reward is the
    mean. With `death_on_sight` there is a mask, and a dead agent can only stay. mode=ego: the rows are those
    of the first agent, and its episode ends with it. `held_out` names a type of partner that only tests have.

    What can be learned in episode 1 is where the target is: the oracle has 4.18, and so has a scripted search
    in episode 2, after 3.13 in episode 1. After the game of ELENDIL (mpodolinsky, 2025), an environment for
    PettingZoo; `envs.interop.grid_world` has that face. Departures: no cost for bumping, no flying observer,
    one target, and every draw is keyed. The splits are disjoint with obstacles or a held-out type.
    """

    Config = GridWorldMultiAgentConfig
    shelf = Shelf.agents
    config: GridWorldMultiAgentConfig
    references = (
        Reference(oracle=4.18, random=0.13),
        Reference(oracle=4.18, random=0.13, options={"mode": SeatsPlayed.ego}),
    )

    def __init__(self, config: GridWorldMultiAgentConfig) -> None:
        super().__init__(config)
        self.joint = config.mode is SeatsPlayed.joint
        if self.joint and config.held_out is not HeldOut.none:
            raise OptionError(
                f"GridWorldMultiAgent: held_out={config.held_out.name} is a type of partner, "
                "and mode=joint has none: use mode=ego."
            )
        self.rules = GridRules(
            size=config.size,
            agents=config.agents,
            obstacles=config.obstacles,
            target_speed=config.target_speed,
            closeness_cost=config.closeness_cost,
            together=config.together,
            death_on_sight=config.death_on_sight,
        )
        self._homes = _homes(self.rules)
        rewards = [f"reward_{agent}" for agent in range(config.agents)]
        held_out = config.held_out is not HeldOut.none
        self.spec = EnvSpec(
            name="GridWorldMultiAgent",
            obs_space=self._obs_space(),
            action_space=spaces.MultiDiscrete([len(MOVES)] * config.agents)
            if self.joint
            else spaces.Discrete(len(MOVES)),
            task_dim=2 + bool(config.obstacles) + (not self.joint),
            info_names=("target_x", "target_y", "seen", "success", *rewards),
            split=Split.disjoint if config.obstacles or held_out else Split.shared,
            reference=self.measured_reference(),
            success="success",
        )

    def _obs_space(self) -> spaces.Box | spaces.Dict:
        if not self.joint:
            return spaces.Box(0.0, 1.0, (FEATURES,), np.float32)
        agents = self.config.agents
        seats = spaces.Box(0.0, 1.0, (agents * (FEATURES + 1),), np.float32)
        if not self.config.death_on_sight:
            return seats
        return spaces.Dict({"seats": seats, MASK_KEY: spaces.Box(0, 1, (agents * len(MOVES),), np.int8)})

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        config = self.config
        numbers = split_choices(rng, n, tuple(range(len(self._homes))), split)
        columns = [self._homes[numbers.astype(np.int64)].astype(np.float64)]
        if config.obstacles:
            columns.append(np.floor(LAYOUTS * split_uniforms(rng, (n, 1), split)))
        if not self.joint:
            columns.append(split_choices(rng, n, self._partners(split), split)[:, None])
        return np.concatenate(columns, 1).astype(np.float64)

    def _partners(self, split: str) -> tuple[float, ...]:
        """The types of partners of a split: tests have the one that training leaves out, and that alone."""
        if self.config.held_out is HeldOut.none:
            return tuple(Partner)
        held_out = Partner[self.config.held_out.name]
        return (held_out,) if split == "test" else tuple(one for one in Partner if one is not held_out)

    def make_shard(self, num_slots: int, threads: int = 1) -> GridWorldShard:
        return GridWorldShard(num_slots, self)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """To the edge of the view of where the target is now; the agents move in their order."""
        seats = obs["seats"] if isinstance(obs, dict) else obs
        board = Board(len(task), self.rules)
        every = slice(None)
        self.set_task(board, np.arange(len(task)), task, np.zeros(len(task), np.uint64))
        # The agents are where they see themselves; a partner, which is not seen from here, in its corner.
        controlled = self.config.agents if self.joint else 1
        places = seats[:, : controlled * FEATURES].reshape(len(task), controlled, FEATURES)[..., :2]
        board.agents[:, :controlled] = board.cells_of(
            np.rint(places * np.float64(self.rules.size - 1)).astype(np.int64)
        )
        board.target[:] = board.cells_of(info[:, :2].astype(np.int64))
        if not self.joint:
            board.agents[:, 1:] = board.nowhere
            return watching_actions(board, every, 0, board.target)
        actions = np.zeros((len(task), controlled), np.int64)
        for seat in range(controlled):
            actions[:, seat] = watching_actions(board, every, seat, board.target)
            board.turn(every, seat, actions[:, seat])
        return actions

    def set_task(
        self, board: Board, at: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
    ) -> None:
        """Begin games of these tasks."""
        whole = np.rint(tasks).astype(np.int64)
        layouts = whole[:, 2 if self.config.obstacles else 0].astype(np.uint64)
        board.reset(at, whole[:, :2], layouts, seeds)


def _homes(rules: GridRules) -> NDArray[np.int64]:
    """[homes, 2] the cells that are far enough from every start, in the order of x and y."""
    board = Board(1, rules)
    every = np.stack(np.divmod(np.arange(rules.size**2), rules.size), 1)
    distance = board.distance(board.cells_of(every)[:, None], board.starts)
    return every[distance.min(1) > SIGHT]


class GridWorldShard(Shard):
    """Slots of GridWorldMultiAgent."""

    def __init__(self, num_slots: int, family: GridWorldMultiAgent) -> None:
        self._num_slots, self._family = num_slots, family
        self._agents, self._joint = family.config.agents, family.joint
        self._shared = family.config.shared_target
        self._board = Board(num_slots, family.rules)
        self._partner = np.zeros(num_slots, np.int64)
        self._seed = np.zeros(num_slots, np.uint64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the agents into their corners, and the target at home."""
        self._family.set_task(self._board, slots, tasks, seeds)
        self._partner[slots] = np.rint(tasks[:, -1])
        self._seed[slots] = seeds
        self._write(slots)
        self.rows.info[slots, 4:] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Play a cycle: every agent's turn, and then the target's."""
        at = index_of(slots, self._num_slots)
        choices = checked_choices(actions, slots, len(MOVES)).reshape(len(slots), -1)
        rows, board, total = self.rows, self._board, np.zeros(len(slots))
        for seat in range(self._agents):
            if seat < choices.shape[1]:
                action = choices[:, seat]
            else:
                action = partner_actions(board, at, seat, self._partner[at], self._seed[at])
            reward = board.turn(at, seat, action)
            rows.info[at, 4 + seat] = reward
            total = total + reward
        board.end_cycle(at)
        # A team has the mean; one who is alone among partners, its own.
        rows.reward[at] = total / self._agents if self._joint else rows.info[at, 4]
        alive = board.alive(at)
        rows.terminated[at] = ~alive.any(1) if self._joint else ~alive[:, 0]
        rows.truncated[at] = False
        self._write(at)

    def _write(self, at: Boards) -> None:
        board, rows, agents = self._board, self.rows, self._agents
        if not self._shared:
            board.shared[at] = board.nowhere
        seen, alive, target = board.observe(at), board.alive(at), board.target[at]
        obs = rows.obs["seats"] if isinstance(rows.obs, dict) else rows.obs
        if self._joint:
            obs[at, : agents * FEATURES] = seen.reshape(len(seen), -1)
            obs[at, agents * FEATURES :] = alive
        else:
            obs[at] = seen[:, 0]
        if isinstance(rows.obs, dict):
            # The living can do all, the dead can only stay.
            mask = np.repeat(alive[..., None], len(MOVES), 2)
            mask[..., STAY] = True
            rows.obs[MASK_KEY][at] = mask.reshape(len(seen), -1)
        distance = board.distance(board.agents[at], target[:, None])
        rows.info[at, 0], rows.info[at, 1] = board.x.take(target), board.y.take(target)
        rows.info[at, 2] = (distance <= SIGHT).any(1)
        rows.info[at, 3] = (distance == SIGHT).all(1)

    def render(self, slot: int) -> NDArray[np.uint8]:
        """See `picture`."""
        return picture(self._board, slot)


# The agents' colours: the first is the robot of all families.
_AGENTS: tuple[Colour, ...] = (ROBOT, (170, 70, 120), (60, 130, 150), (130, 100, 60))


def picture(board: Board, number: int) -> NDArray[np.uint8]:
    """One board: the target green, what agents see in yellow, obstacles dark; x to the right, y upwards."""
    size = board.rules.size
    cells = board.cells_of(np.stack(np.divmod(np.arange(size**2), size), 1))
    colours = np.full((size * size, 3), GROUND, np.uint8)
    agents = board.agents[number]
    colours[(board.distance(cells[:, None], agents) <= SIGHT).any(1)] = HINT
    colours[board.blocked(slice(number, number + 1), cells[None])[0]] = WALL
    colours[cells == board.target[number]] = GOAL
    for agent, colour in zip(agents, _AGENTS, strict=False):
        colours[cells == agent] = colour
    return tiles(colours.reshape(size, size, 3).swapaxes(0, 1)[::-1])

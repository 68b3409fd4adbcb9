"""MetaFrozenLake: the way over a frozen lake full of hidden holes, a new lake for every task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.meta.kernels import checked_choices, index_of, split_draws
from envs.meta.pictures import DANGER, GOAL, GROUND, ROBOT, tiles
from utils.options import option

# What the actions add to (x, y).
MOVES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], np.int64)


class HoleEffect(Enum):
    """What a hole does: `end` ends the episode; `recover` costs 0.1 and the walker stays where it was."""

    end = "end"
    recover = "recover"


@dataclass
class MetaFrozenLakeConfig(EnvConfig):
    """Options of MetaFrozenLake; the defaults are the 5 x 5 lake of AMAGO."""

    family: str = "MetaFrozenLake"
    max_rollouts_per_task: int = option(10, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(0, "H: environment steps in an episode; 0: size times size", low=0)
    size: int = option(5, "N: rows and columns of the lake", low=3, high=32)
    frozen: float = option(
        0.8,
        "the probability of ice in a cell, before lakes without a way to the goal are drawn again",
        low=0.65,
        high=0.95,
    )
    holes: HoleEffect = option(
        HoleEffect.end, "whether a hole ends the episode, or costs 0.1 and leaves the walker where it was"
    )

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or self.size**2)


class MetaFrozenLake(TaskFamily):
    """A walker has to cross a frozen lake full of hidden holes, a new lake for every task.

    Task: the N x N cells, 1 for a hole and 0 for ice, cell (x, y) at number N x + y. Each cell is ice with
    probability 0.8; start (0, 0) and goal (N-1, N-1) always are ice, and lakes in which no way leads from one
    to the other are drawn again. Observation: the position (x / N, y / N). Action: stay, x + 1, x - 1, y + 1,
    y - 1; the shore stops, and nothing slips. Reward: 1 on the goal, else 0 (holes=recover: -0.1 for a step
    into a hole, which leads nowhere). Terminated: on the goal, and in a hole unless holes=recover. H = N^2,
    k=10. Info: success (on the goal). No quantity lags.

    Published as MetaFrozenLake of AMAGO, size=5, with holes=end or recover. There the observation also
    contains the number of the attempt and whether it has just begun, where here the new-episode flag stands
    beside it; and there an attempt has no time limit of its own. Its hard mode (noise on the position,
    swapped axes, ice that breaks behind the walker) is not offered. The splits are disjoint.
    """

    Config = MetaFrozenLakeConfig
    shelf = Shelf.grid
    config: MetaFrozenLakeConfig
    references = (
        Reference(oracle=1.0, random=0.011),
        Reference(oracle=1.0, random=-0.232, options={"holes": HoleEffect.recover}),
    )

    def __init__(self, config: MetaFrozenLakeConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="MetaFrozenLake",
            obs_space=spaces.Box(0.0, 1.0, (2,), np.float32),
            action_space=spaces.Discrete(len(MOVES)),
            task_dim=config.size**2,
            info_names=("success",),
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        def draw(count: int) -> NDArray[np.float64]:
            tasks = np.zeros((count, self.spec.task_dim))
            # Draw lakes until all of them have a way from the start to the goal.
            bad = np.arange(count)
            while len(bad):
                lakes = (rng.random((len(bad), self.spec.task_dim)) >= self.config.frozen).astype(np.float64)
                lakes[:, [0, -1]] = 0.0
                tasks[bad] = lakes
                bad = bad[steps_to_goal(lakes, self.config.size)[:, 0] == UNREACHABLE]
            return tasks

        return split_draws(draw, n, split)

    def make_shard(self, num_slots: int, threads: int = 1) -> MetaFrozenLakeShard:
        return MetaFrozenLakeShard(num_slots, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """A shortest way to the goal: to the first neighbour that is nearer."""
        assert isinstance(obs, np.ndarray)
        size = self.config.size
        steps = _cached_steps_to_goal(task.tobytes(), size)
        position = np.rint(obs[:, :2] * float(size)).astype(np.int64)
        # The five cells that the actions lead to, and of them the one with the fewest steps to the goal.
        neighbours = np.minimum(np.maximum(position[:, None] + MOVES, 0), size - 1)
        numbers = size * neighbours[..., 0] + neighbours[..., 1]
        return np.argmin(steps[np.arange(len(position))[:, None], numbers], axis=1)


class MetaFrozenLakeShard(Shard):
    """Slots of MetaFrozenLake."""

    def __init__(self, num_slots: int, config: MetaFrozenLakeConfig) -> None:
        self._num_slots = num_slots
        self._size = config.size
        self._ends = config.holes is HoleEffect.end
        self._hole = np.zeros((num_slots, config.size**2), np.bool_)
        self._position = np.zeros((num_slots, 2), np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the walkers at the start."""
        self._hole[slots] = tasks != 0.0
        self._position[slots] = 0
        assert isinstance(self.rows.obs, np.ndarray)
        self.rows.obs[slots] = 0.0
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Walk over the ice."""
        at = index_of(slots, self._num_slots)
        last = self._size - 1
        moves = MOVES[checked_choices(actions, slots, len(MOVES))]
        # The shore stops a move out of the lake.
        position = np.minimum(np.maximum(self._position[at] + moves, 0), last)
        # A hole leads nowhere where walkers recover from it.
        fell = self._hole[slots, self._size * position[:, 0] + position[:, 1]]
        if not self._ends:
            position = np.where(fell[:, None], self._position[at], position)
        self._position[at] = position
        on_goal = (position[:, 0] == last) & (position[:, 1] == last)
        rows = self.rows
        if self._ends:
            rows.reward[at] = on_goal
            rows.terminated[at] = on_goal | fell
        else:
            rows.reward[at] = on_goal - 0.1 * fell
            rows.terminated[at] = on_goal
        rows.truncated[at] = False
        rows.info[at, 0] = on_goal
        assert isinstance(rows.obs, np.ndarray)
        rows.obs[at] = position / self._size

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The start on top left, x downwards; holes red, the goal green, the walker dark blue."""
        colours = np.full((self._size, self._size, 3), GROUND, np.uint8)
        colours[self._hole[slot].reshape(self._size, self._size)] = DANGER
        colours[-1, -1] = GOAL
        colours[tuple(self._position[slot])] = ROBOT
        return tiles(colours)


# More steps than any way has.
UNREACHABLE = 10_000


def steps_to_goal(tasks: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """[n, size * size] the number of steps from each cell of these lakes to the goal.

    It is UNREACHABLE for holes, and where no way leads to the goal.
    """
    # A breadth-first search in all lakes at once, on boards with an edge that is no ice.
    ice = np.zeros((len(tasks), size + 2, size + 2), np.bool_)
    ice[:, 1:-1, 1:-1] = tasks.reshape(-1, size, size) == 0.0
    steps = np.full(ice.shape, UNREACHABLE)
    steps[:, size, size] = 0
    for distance in range(1, size**2):
        # The cells that were reached last, and their neighbours in the four directions.
        front = steps == distance - 1
        reached = np.zeros_like(front)
        reached[:, 1:] |= front[:, :-1]
        reached[:, :-1] |= front[:, 1:]
        reached[:, :, 1:] |= front[:, :, :-1]
        reached[:, :, :-1] |= front[:, :, 1:]
        reached &= ice & (steps == UNREACHABLE)
        if not reached.any():
            break
        steps[reached] = distance
    return steps[:, 1:-1, 1:-1].reshape(len(tasks), -1)


@lru_cache(maxsize=8)
def _cached_steps_to_goal(tasks: bytes, size: int) -> NDArray[np.int64]:
    """The steps of these lakes; an oracle asks for the same lakes at every step of an episode."""
    return steps_to_goal(np.frombuffer(tasks).reshape(-1, size**2), size)

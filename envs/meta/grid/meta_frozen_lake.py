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

MOVES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], np.int64)
"""What the actions do to (x, y)."""


class HoleEffect(Enum):
    """What a hole does: `end` ends the episode, `recover` costs 0.1 and one stays where one was."""

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
        "how likely each cell is frozen, before lakes without a way to the goal are refused",
        low=0.65,
        high=0.95,
    )
    holes: HoleEffect = option(
        HoleEffect.end, "end: a hole ends the episode; recover: it costs 0.1 and one stays where one was"
    )

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or self.size**2)


class MetaFrozenLake(TaskFamily):
    """The way over a frozen lake full of hidden holes, a new lake for every task.

    Task: the N x N cells, 1 for a hole and 0 for ice, cell (x, y) at number N x + y. Each cell is ice with
    probability 0.8; start (0, 0) and goal (N-1, N-1) always are, and maps in which no way leads from one to
    the other are drawn again. Observation: the position (x / N, y / N). Action: stay, x + 1, x - 1, y + 1, y
    - 1; the shore stops, and nothing slips. Reward: 1 on the goal, else 0 (holes=recover: -0.1 for a step
    into a hole, which leads nowhere). Terminated: on the goal, and in a hole unless holes=recover. H = N^2,
    k=10. Info: success (on the goal). No quantity lags.

    Published as MetaFrozenLake of AMAGO, size=5, with holes=end or recover. There the observation also tells
    the number of the attempt and whether it has just begun, where here the new-episode flag stands beside it;
    and there an attempt has no limit of its own steps. Its hard mode (noise on the position, swapped axes,
    ice that breaks behind one) is not offered. The splits are disjoint.
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
        here = np.rint(obs[:, :2] * float(size)).astype(np.int64)
        beside = np.minimum(np.maximum(here[:, None] + MOVES, 0), size - 1)
        return np.argmin(steps[np.arange(len(here))[:, None], size * beside[..., 0] + beside[..., 1]], axis=1)


class MetaFrozenLakeShard(Shard):
    """Slots of MetaFrozenLake."""

    def __init__(self, num_slots: int, config: MetaFrozenLakeConfig) -> None:
        self._num_slots = num_slots
        self._size = config.size
        self._ends = config.holes is HoleEffect.end
        self._hole = np.zeros((num_slots, config.size**2), np.bool_)
        self._position = np.zeros((num_slots, 2), np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Back to the start."""
        self._hole[slots] = tasks != 0.0
        self._position[slots] = 0
        self.rows.obs[slots] = 0.0  # pyright: ignore[reportArgumentType, reportCallIssue] - a Box, not a Dict
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Walk over the ice."""
        at = index_of(slots, self._num_slots)
        last = self._size - 1
        moves = MOVES[checked_choices(actions, slots, len(MOVES))]
        position = np.minimum(np.maximum(self._position[at] + moves, 0), last)
        fell = self._hole[slots, self._size * position[:, 0] + position[:, 1]]
        if not self._ends:
            position = np.where(fell[:, None], self._position[at], position)
        self._position[at] = position
        there = (position[:, 0] == last) & (position[:, 1] == last)
        rows = self.rows
        rows.reward[at] = there if self._ends else there - 0.1 * fell
        rows.terminated[at] = there | fell if self._ends else there
        rows.truncated[at] = False
        rows.info[at, 0] = there
        rows.obs[at] = position / self._size  # pyright: ignore[reportArgumentType, reportCallIssue] - a Box, not a Dict

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The start on top left, x downwards; holes in red, the goal in green, the one who walks in dark
        blue.
        """
        colours = np.full((self._size, self._size, 3), GROUND, np.uint8)
        colours[self._hole[slot].reshape(self._size, self._size)] = DANGER
        colours[-1, -1] = GOAL
        colours[tuple(self._position[slot])] = ROBOT
        return tiles(colours)


UNREACHABLE = 10_000
"""More steps than any way has."""


def steps_to_goal(tasks: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """[n, size * size] how many steps each cell of these lakes is away from the goal; UNREACHABLE for holes and where
    no way leads.
    """
    ice = np.zeros((len(tasks), size + 2, size + 2), np.bool_)
    ice[:, 1:-1, 1:-1] = tasks.reshape(-1, size, size) == 0.0
    steps = np.full(ice.shape, UNREACHABLE)
    steps[:, size, size] = 0
    for distance in range(1, size**2):
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
    """The steps of these lakes: an oracle is asked about the same ones at every step."""
    return steps_to_goal(np.frombuffer(tasks).reshape(-1, size**2), size)

"""DelayedCatch: balls to catch, one after another, and the reward for all of them at the very end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.meta.kernels import check_split, checked_choices, index_of
from envs.meta.pictures import DANGER, GROUND, ROBOT, tiles
from utils.options import option
from utils.seeding import uniforms

# Rows and columns of the board.
SIZE = 7
# Where the paddle's row starts in the flattened board.
LAST_ROW = SIZE * (SIZE - 1)
# The numbers that stand for the ball and the paddle in an observation.
BALL, PADDLE = -1.0, 1.0


@dataclass
class DelayedCatchConfig(EnvConfig):
    """Options of DelayedCatch; the defaults are Delayed Catch-40."""

    family: str = "DelayedCatch"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        0, "H: environment steps in an episode; 0: as many as the balls take", low=0
    )
    runs: int = option(40, "R: balls in an episode; each falls through seven rows", low=1, high=1000)

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or SIZE * self.runs - 1)


class DelayedCatch(TaskFamily):
    """A paddle has to catch ball after ball, and the reward for all of them comes at the very end.

    A ball falls through the seven rows of a 7 x 7 board, one row in a step; the paddle moves in the bottom
    row. In the step after a ball has reached the bottom, the next one appears on top and the paddle in a new
    place, whatever the action. Balls start in column 0 to 5 and paddles in column 1 to 4, uniform, so every
    ball can be caught.

    Task: there is one, [0]; all differences are drawn from the seed of the episode. Observation: the
    flattened board, 49 numbers, row by row from the top: -1 where the ball is, 1 where the paddle is (it
    hides a ball that it catches), else 0. Action: 0 left, 1 stay, 2 right. Reward: at the last step the
    number of balls caught, until then 0. Terminated: when the last ball is down, after H = 7 (R - 1) + 6
    steps (R=40: 279); a smaller `max_episode_steps` cuts the episode before its reward. k=1. Info: balls
    caught so far (which the observation does not show), success (all R of them). No quantity lags.

    Published as Delayed Catch-R, with R in 5, 10, 20, 40 (`runs`), to measure credit assignment over long
    delays. The splits share the one task.
    """

    Config = DelayedCatchConfig
    shelf = Shelf.grid
    config: DelayedCatchConfig
    # Uniform actions catch a little more than a seventh of the balls.
    references = (
        Reference(oracle=5.0, random=0.77, options={"runs": 5}),
        Reference(oracle=10.0, random=1.53, options={"runs": 10}),
        Reference(oracle=20.0, random=3.05, options={"runs": 20}),
        Reference(oracle=40.0, random=6.06, options={"runs": 40}),
    )

    def __init__(self, config: DelayedCatchConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="DelayedCatch",
            obs_space=spaces.Box(-1.0, 1.0, (SIZE * SIZE,), np.float32),
            action_space=spaces.Discrete(3),
            task_dim=1,
            info_names=("caught", "success"),
            split=Split.shared,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        check_split(split)
        return np.zeros((n, 1))

    def make_shard(self, num_slots: int, threads: int = 1) -> DelayedCatchShard:
        return DelayedCatchShard(num_slots, self.config.runs)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Move under the ball as fast as possible; the ball is always seen, so the task is not needed."""
        assert isinstance(obs, np.ndarray)
        ball = np.argmin(obs, axis=1) % SIZE
        paddle = np.argmax(obs[:, LAST_ROW:], axis=1)
        # The paddle hides a ball that it catches.
        caught = obs.min(axis=1) >= 0.0
        return 1 + np.where(caught, 0, np.sign(ball - paddle))


class DelayedCatchShard(Shard):
    """Slots of DelayedCatch."""

    def __init__(self, num_slots: int, runs: int) -> None:
        self._num_slots = num_slots
        self._runs = runs
        self._length = SIZE * runs - 1
        # The columns in which the ball and the paddle of every run start.
        self._balls = np.zeros((num_slots, runs), np.int64)
        self._paddles = np.zeros((num_slots, runs), np.int64)
        self._time = np.zeros(num_slots, np.int64)
        self._paddle = np.zeros(num_slots, np.int64)
        self._caught = np.zeros(num_slots, np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Draw the starts of all runs."""
        # The first half of the draws are balls (columns 0 to 5), the second paddles (columns 1 to 4).
        draws = uniforms(seeds, 2 * self._runs)
        self._balls[slots] = (SIZE - 1) * draws[:, : self._runs]
        self._paddles[slots] = 1.0 + (SIZE - 3) * draws[:, self._runs :]
        self._time[slots] = self._caught[slots] = 0
        self._paddle[slots] = self._paddles[slots, 0]
        self._write(slots, slots, np.zeros_like(slots), self._balls[slots, 0], self._paddle[slots])
        self.rows.info[slots] = 0.0

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move the paddle and let the ball fall, or begin the next run."""
        at = index_of(slots, self._num_slots)
        moved = self._paddle[at] + checked_choices(actions, slots, 3) - 1
        # A run takes seven rows: this one's number, and how far its ball has fallen.
        time = self._time[at] = self._time[at] + 1
        run = np.minimum(time // SIZE, self._runs - 1)
        height = time % SIZE
        ball = self._balls[slots, run]
        # At the start of a run the paddle is in a new place; else it moves, up to the edges.
        paddle = np.where(height == 0, self._paddles[slots, run], np.minimum(np.maximum(moved, 0), SIZE - 1))
        self._paddle[at] = paddle
        # A ball counts in the step in which it reaches the bottom.
        caught = self._caught[at] = self._caught[at] + ((height == SIZE - 1) & (ball == paddle))
        # All of the reward comes with the last step.
        over = time >= self._length
        rows = self.rows
        rows.reward[at] = caught * over
        rows.terminated[at] = over
        rows.truncated[at] = False
        rows.info[at, 0] = caught
        rows.info[at, 1] = caught >= self._runs
        self._write(at, slots, height, ball, paddle)

    def _write(
        self,
        at: NDArray[np.int64] | slice,
        slots: NDArray[np.int64],
        height: NDArray[np.int64],
        ball: NDArray[np.int64],
        paddle: NDArray[np.int64],
    ) -> None:
        """Write the board; the paddle is drawn last, so it hides a ball that it catches."""
        obs = self.rows.obs
        assert isinstance(obs, np.ndarray)
        obs[at] = 0.0
        obs[slots, SIZE * height + ball] = BALL
        obs[slots, LAST_ROW + paddle] = PADDLE

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The ball in red, the paddle in dark blue."""
        assert isinstance(self.rows.obs, np.ndarray)
        board = self.rows.obs[slot].reshape(SIZE, SIZE)
        colours = np.full((SIZE, SIZE, 3), GROUND, np.uint8)
        colours[board == BALL] = DANGER
        colours[board == PADDLE] = ROBOT
        return tiles(colours)

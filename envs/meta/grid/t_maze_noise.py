"""TMazeNoise: a T-maze with noise that looks like the cue, or that has to be copied (LN, LS of AMRL)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, TaskFamily
from envs.meta.kernels import checked_choices, index_of, split_choices
from envs.meta.pictures import GOAL, GROUND, HINT, ROBOT, WALL, tiles
from utils.options import OptionError, option
from utils.seeding import episode_seeds, uniforms

LEFT, RIGHT, UP, DOWN = range(4)

# The rewards of the right side, of the wrong side, and of a copied noise.
SUCCESS, FAILURE, CHECK = 4.0, -3.0, 0.1


class NoiseVariant(Enum):
    """What moves the player.

    `LN` (long, noise): every action moves it on. `LS` (long, short): only the action that copies the noise
    does, and it is rewarded.
    """

    LN = "LN"
    LS = "LS"


@dataclass
class TMazeNoiseConfig(EnvConfig):
    """Options of TMazeNoise; the defaults are T-LS-P1 of hyper."""

    family: str = "TMazeNoise"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        0, "H: time limit of an episode; 0: 1.5 times the length (150 as published)", low=0
    )
    variant: NoiseVariant = option(
        NoiseVariant.LS, "whether every action moves on (LN), or only the one that copies the noise (LS)"
    )
    length: int = option(100, "cells of the corridor; in the last one the side is chosen", low=3)
    indicator_at: int = option(1, "the cell where the cue is seen, 0 being the start", low=0)
    agreement_at: int | None = option(
        None, "the cell of a second cue: the goal is down if the two agree, else up", low=1
    )

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or self.length + self.length // 2)


class TMazeNoise(TaskFamily):
    """A cue in a corridor, amid noise, says on which side of the corridor's far end the goal is.

    Task: the cue, 1 (up) or -1 (down), equally often; with `agreement_at` two of them, and the goal is down
    where they agree, up where they differ. Observation: [at the start, cue, at the end, noise]: the cue is 0
    except in its cell, the noise is 1 or -1, drawn anew at every step. Action: left, right, up, down. Every
    episode starts in cell 0 of `length`. LN: in the corridor every action moves one cell on, and at the end
    left counts as up and right as down. LS: the action that copies the noise (up for 1, down for -1) moves
    one cell on, any other stays; at the end left and right do nothing. Reward: in LS 0.1 for a copied noise,
    but not at the end; in both 4 for the right side and -3 for the wrong one. Terminated: when a side is
    chosen. H = 150 steps for 100 cells, k = 1. Info: time, cell, success (the side was right).

    Published as T-LN (variant=LN, indicator_at=0), T-LN-P1 (variant=LN), T-LS-P1 (the defaults) and
    T-LN-P1-A50 (variant=LN, agreement_at=50) of hyper, whose rules these are, after the mazes of AMRL. LN
    takes `length` steps whatever the agent does, and its only choice is the last one. The best return is 4 in
    LN, 4 + 0.1 (length - 1) in LS. Departures: after H steps an episode is truncated, where hyper returned
    one more, empty step and called that its end. The splits are shared.
    """

    Config = TMazeNoiseConfig
    shelf = Shelf.grid
    config: TMazeNoiseConfig
    # The returns are the same wherever the cues are.
    references = (
        Reference(oracle=13.9, random=3.75),
        Reference(oracle=4.0, random=0.49, options={"variant": NoiseVariant.LN}),
    )
    options_without_effect = ("indicator_at", "agreement_at")

    def __init__(self, config: TMazeNoiseConfig) -> None:
        super().__init__(config)
        self._cells = [config.indicator_at]
        if config.agreement_at is not None:
            self._cells.append(config.agreement_at)
        inside = range(config.length - 1)
        if any(cell not in inside for cell in self._cells) or len(set(self._cells)) < len(self._cells):
            raise OptionError(
                f"TMazeNoise: the cues are at {self._cells}: they need cells of their own "
                f"below {config.length - 1}, the last one."
            )
        self.spec = EnvSpec(
            name="TMazeNoise",
            obs_space=spaces.Box(-1.0, 1.0, (4,), np.float32),
            action_space=spaces.Discrete(4),
            task_dim=len(self._cells),
            info_names=("time", "cell", "success"),
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        # All combinations of the cues equally often: bit i of the number is the sign of cue i.
        number = split_choices(rng, n, tuple(range(2 ** len(self._cells))), split).astype(np.int64)
        signs = 2 * (number[:, None] >> np.arange(len(self._cells)) & 1) - 1
        return signs.astype(np.float64)

    def make_shard(self, num_slots: int, threads: int = 1) -> TMazeNoiseShard:
        return TMazeNoiseShard(
            num_slots, self.config.length, self._cells, copying=self.config.variant is NoiseVariant.LS
        )

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        assert isinstance(obs, np.ndarray)
        # At the end the goal's side, before it the noise (which LN ignores).
        wanted = np.where(obs[:, 2] > 0, goal_side(task), obs[:, 3])
        return np.where(wanted > 0, UP, DOWN)


class TMazeNoiseShard(Shard):
    """Slots of TMazeNoise; `cells` are the cells of its cues."""

    def __init__(self, num_slots: int, length: int, cells: list[int], *, copying: bool) -> None:
        self._num_slots = num_slots
        self._last = length - 1
        self._cells = cells
        self._copying = copying
        self._time, self._cell, self._side, self._noise = (np.zeros(num_slots, np.int64) for _ in range(4))
        self._cues = np.zeros((num_slots, len(cells)), np.int64)
        self._seed = np.zeros(num_slots, np.uint64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the players at the start, with other noise."""
        self._cues[slots] = np.rint(tasks)
        self._side[slots] = goal_side(tasks)
        self._seed[slots] = seeds
        self._time[slots] = self._cell[slots] = 0
        self._write(slots, np.zeros(len(slots), np.bool_))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move on, or choose the side."""
        choices = checked_choices(actions, slots, 4)
        at = index_of(slots, self._num_slots)
        at_end = self._cell[at] == self._last
        direction = np.where(choices == UP, 1, np.where(choices == DOWN, -1, 0))
        if self._copying:
            # Only the action that copies the noise of the present row moves on.
            moved = ~at_end & (direction == self._noise[at])
        else:
            # Every action moves on; at the end left counts as up, and right as down.
            moved = ~at_end
            direction = np.where(choices == LEFT, 1, np.where(choices == RIGHT, -1, direction))
        # At the end a direction is the choice of a side, which ends the episode.
        chosen = at_end & (direction != 0)
        success = chosen & (direction == self._side[at])
        self._cell[at] += moved
        self._time[at] += 1
        choice_reward = np.where(success, SUCCESS, FAILURE)
        self.rows.reward[at] = np.where(chosen, choice_reward, CHECK * (moved & self._copying))
        self.rows.terminated[at] = chosen
        self.rows.truncated[at] = False
        self._write(at, success)

    def _write(self, at: NDArray[np.int64] | slice, success: NDArray[np.bool_]) -> None:
        rows, cell, time = self.rows, self._cell[at], self._time[at]
        assert isinstance(rows.obs, np.ndarray)
        # A fair coin for every step, from a stream that is keyed by seed and step.
        self._noise[at] = np.where(uniforms(episode_seeds(self._seed[at], time), 1)[:, 0] < 0.5, 1, -1)
        rows.obs[at, 0] = cell == 0
        # Each cue is seen in its own cell only, so at most one term of the sum is not 0.
        rows.obs[at, 1] = sum(
            (self._cues[at, i] * (cell == of_cue) for i, of_cue in enumerate(self._cells)),
            np.zeros(len(cell), np.int64),
        )
        rows.obs[at, 2] = cell == self._last
        rows.obs[at, 3] = self._noise[at]
        for column, value in enumerate((time, cell, success)):
            rows.info[at, column] = value

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The corridor from left to right: the cues' cells yellow, the goal green, the player dark blue."""
        cells = np.full((3, self._last + 1, 3), WALL, np.uint8)
        cells[1] = cells[:, -1] = GROUND
        cells[1, self._cells] = HINT
        cells[1 - self._side[slot], -1] = GOAL
        cells[1, self._cell[slot]] = ROBOT
        return tiles(cells)


def goal_side(tasks: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] the goal's side, 1 is up: the cue itself, or of two cues down where they agree."""
    if tasks.shape[1] == 1:
        return tasks[:, 0]
    return -tasks[:, 0] * tasks[:, 1]

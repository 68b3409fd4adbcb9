"""The T-maze, passive and active: a cue decides where the goal is, at the end of a long corridor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, TaskFamily
from envs.meta.kernels import checked_choices, index_of, split_choices
from envs.meta.pictures import GOAL, GROUND, HINT, ROBOT, WALL, tiles
from utils.options import option

RIGHT, UP, LEFT, DOWN = range(4)

MOVES_X = np.array([1, 0, -1, 0])
MOVES_Y = np.array([0, 1, 0, -1])


class Penalty(Enum):
    """What costs 1/L on the way.

    `lagging`: a step that ends behind the pace; `wrong_action`: a step that is not to the right; `none`:
    nothing.
    """

    lagging = "lagging"
    wrong_action = "wrong_action"
    none = "none"


@dataclass
class TMazePassiveConfig(EnvConfig):
    """Options of TMazePassive; the defaults are the passive T-maze of Memory-RL with a corridor of 100."""

    family: str = "TMazePassive"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(
        0,
        "H: time limit of an episode; 0: length + 1, the end of the game",
        low=0,
    )
    length: int = option(100, "L: steps from the start of the corridor to the junction", low=1)
    penalty: Penalty = option(
        Penalty.lagging, "what costs 1/L: to lag behind the pace, an action other than right, or nothing"
    )

    # The number of cells between the cue and the start.
    cue_distance: ClassVar[int] = 0

    @property
    def game_steps(self) -> int:
        """Steps after which the game is over: to the cue and back, along the corridor, to the goal."""
        return self.length + 2 * self.cue_distance + 1

    def resolved(self) -> Self:
        return replace(self, max_episode_steps=self.max_episode_steps or self.game_steps)


@dataclass
class TMazeActiveConfig(TMazePassiveConfig):
    """Options of TMazeActive; the defaults are the active T-maze of Memory-RL with a corridor of 20."""

    family: str = "TMazeActive"
    max_episode_steps: int = option(
        0,
        "H: time limit of an episode; 0: length + 3, the end of the game",
        low=0,
    )
    length: int = option(20, "L: steps from the start to the junction", low=1)

    cue_distance = 1


# The penalty of AMAGO.
_AMAGO = {"penalty": Penalty.wrong_action}


class TMazePassive(TaskFamily):
    """A cue, seen at the start of a corridor only, says on which side of its far end the goal is.

    Task: the cue, 1 or -1, equally often: the goal's side y. The corridor is x = 0..L, its junction x = L,
    with the two goal cells y = 1 and y = -1 beside that. An episode starts at x = 0, where the cue is, and is
    over after L + 1 steps, which are just enough to reach a goal cell. Observation: [0, cue] at the start,
    [0, 0] at x = 0 later and inside the corridor, [1, y] at the junction and in the goal cells: the position
    in the corridor is hidden. Action: right, up, left, down; a move into a wall stays. Reward: at the last
    step 1 if y = cue, at the others -1/L whenever x < t, where t counts the steps. H = L + 1, k = 1. The last
    step is `terminated`, because the game is over then and no clock ran out; `max_episode_steps` may cut an
    episode short. Info: time t, x, y, success (the reward at the end). Optimal return: 1.

    Published as the passive T-maze of Memory-RL (length=50 to 1500). There one step to the left or up is
    punished at all later steps too, which makes random exploration hopeless. penalty=wrong_action is the
    penalty of AMAGO, where a step costs 1/L only if its own action is not right. The two cues are all the
    tasks there are, so the splits are shared.
    """

    Config: ClassVar[type[EnvConfig]] = TMazePassiveConfig
    shelf = Shelf.grid
    config: TMazePassiveConfig
    # For the length of the YAML file and the default, each with the penalty of Memory-RL and of AMAGO.
    references = (
        Reference(oracle=1.0, random=-0.993, options={"length": 50}),
        Reference(oracle=1.0, random=-0.75, options={"length": 50, **_AMAGO}),
        Reference(oracle=1.0, random=-0.997),
        Reference(oracle=1.0, random=-0.75, options=_AMAGO),
    )

    def __init__(self, config: TMazePassiveConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name=type(self).__name__,
            obs_space=spaces.Box(-1.0, 1.0, (2,), np.float32),
            action_space=spaces.Discrete(4),
            task_dim=1,
            info_names=("time", "x", "y", "success"),
            reference=self.measured_reference(),
            success="success",
        )

    @classmethod
    def options_of_return(cls, config: EnvConfig) -> dict[str, Any]:
        """All options; a time limit beyond the end of the game counts as that end."""
        assert isinstance(config, TMazePassiveConfig)
        limit = min(config.max_episode_steps, config.game_steps)
        return super().options_of_return(config) | {"max_episode_steps": limit}

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, (-1.0, 1.0), split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> TMazeShard:
        return TMazeShard(num_slots, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Right, also into the junction's wall, until the last step.

        No other way is free of all penalties.
        """
        to_goal = np.where(task[:, 0] > 0, UP, DOWN)
        return np.where(info[:, 0] < self.config.game_steps - 1, RIGHT, to_goal)


class TMazeActive(TMazePassive):
    """A cue, one cell behind the start of a corridor, says on which side of its far end the goal is.

    As TMazePassive, but the agent has to fetch the cue: an episode starts at x = 1, the cue is at x = 0 and
    is seen there at the first visit only, the junction is at x = L + 1, and the episode has the two more
    steps that it takes to go there and back. Task: the cue, 1 or -1, equally often: the goal's side y.
    Observation: [0, cue] at the first visit of x = 0, else [0, 0] in the corridor, [1, y] at the junction and
    in the goal cells. Action: right, up, left, down; a move into a wall stays. Reward: at the last step 1 if
    y = cue, at the others -1/L whenever x < t - 1, where t counts the steps. H = L + 3, k = 1; the last step
    is `terminated`. Info: time t, x, y, success (the reward at the end). Optimal return: 1, with and without
    knowledge of the task.

    Published as the active T-maze of Memory-RL (length=20 to 500). penalty=wrong_action is the penalty of
    AMAGO, where a step costs 1/L only if its own action is not right, and the first step is free. The splits
    are shared.
    """

    Config = TMazeActiveConfig
    references = (
        Reference(oracle=1.0, random=-0.987),
        Reference(oracle=1.0, random=-0.789, options=_AMAGO),
    )


class TMazeShard(Shard):
    """Slots of a T-maze."""

    def __init__(self, num_slots: int, config: TMazePassiveConfig) -> None:
        self._num_slots = num_slots
        self._start = config.cue_distance
        self._junction = config.cue_distance + config.length
        self._end = config.game_steps
        self._cost = -1.0 / config.length
        self._penalty = config.penalty
        self._time, self._x, self._y, self._cue = (np.zeros(num_slots, np.int64) for _ in range(4))
        self._cue_seen = np.zeros(num_slots, np.bool_)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the players at the start; nothing is drawn."""
        self._cue[slots] = np.rint(tasks[:, 0])
        self._time[slots] = self._y[slots] = 0
        self._x[slots] = self._start
        self._cue_seen[slots] = False
        self._write(slots, np.zeros(len(slots), np.bool_))

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move the players, unless into a wall."""
        choices = checked_choices(actions, slots, 4)
        at = index_of(slots, self._num_slots)
        # Inside the corridor y is 0; only at the junction a step up or down leads to a goal cell.
        x, y = self._x[at] + MOVES_X[choices], self._y[at] + MOVES_Y[choices]
        free = np.where(y == 0, (x >= 0) & (x <= self._junction), (x == self._junction) & (abs(y) == 1))
        self._x[at] = x = np.where(free, x, self._x[at])
        self._y[at] = y = np.where(free, y, self._y[at])
        self._time[at] += 1
        time = self._time[at]
        # The goal counts at the last step only; on the way there are penalties.
        success = (time == self._end) & (y == self._cue[at])
        penalty = self._cost * self._punished(choices, x, time)
        self.rows.reward[at] = np.where(time < self._end, penalty, success)
        self.rows.terminated[at] = time >= self._end
        self.rows.truncated[at] = False
        self._write(at, success)

    def _punished(
        self, choices: NDArray[np.int64], x: NDArray[np.int64], time: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """[n] whether the penalty is due for this step."""
        if self._penalty is Penalty.lagging:
            return x < time - self._start
        # The first step may go to the cue, where the cue is not at the start.
        if self._penalty is Penalty.wrong_action:
            return (choices != RIGHT) & (time > self._start)
        return np.zeros(len(x), np.bool_)

    def _write(self, at: NDArray[np.int64] | slice, success: NDArray[np.bool_]) -> None:
        x, y, rows = self._x[at], self._y[at], self.rows
        assert isinstance(rows.obs, np.ndarray)
        at_junction, at_cue = x == self._junction, x == 0
        # The second number is the cue at the first visit of its cell, and the side beyond the junction.
        cue = np.where(at_cue & ~self._cue_seen[at], self._cue[at], 0)
        rows.obs[at, 0] = at_junction
        rows.obs[at, 1] = np.where(at_junction, y, cue)
        self._cue_seen[at] |= at_cue
        for column, value in enumerate((self._time[at], x, y, success)):
            rows.info[at, column] = value

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The corridor from left to right: the cue's cell yellow, the goal green, the player dark blue."""
        cells = np.full((3, self._junction + 1, 3), WALL, np.uint8)
        cells[1] = cells[:, -1] = GROUND
        cells[1, 0] = HINT
        cells[1 - self._cue[slot], -1] = GOAL
        cells[1 - self._y[slot], self._x[slot]] = ROBOT
        return tiles(cells)

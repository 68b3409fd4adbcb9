"""PointRobot: a point that has to find a goal on a circle, on half of it, or in a square."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms
from envs.meta.toy.plane import ACTION_SPACE, INFO_NAMES, OBS_SPACE, PlaneShard, on_circle, towards
from utils.options import OptionError, option
from utils.seeding import episode_seeds, uniforms


class GoalPlaces(Enum):
    """Where goals are; they are uniform there.

    `half_circle`: the upper half; `circle`: the whole circle; `square`: [-1, 1] x [-1, 1].
    """

    half_circle = "half_circle"
    circle = "circle"
    square = "square"


class GoalArcs(Enum):
    """Which goals of the circle are for training and which are for tests.

    `same`: all are for both. `down_up`: the lower half to train, the upper half to test. `sides`: the
    quarters on the right and left to train, those above and below to test.
    """

    same = "same"
    down_up = "down_up"
    sides = "sides"


class PointStart(Enum):
    """Where an episode starts.

    `fixed`: (0, 0). `random`: uniform in [-1.5, 1.5] x [-0.5, 1.5]. `square`: uniform in [-1, 1] x [-1, 1].
    """

    fixed = "fixed"
    random = "random"
    square = "square"


class PointReward(Enum):
    """The reward of a step at distance d.

    `sparse`: 1 in the goal. `sparse_distance`: 1 - d in the goal. `dense`: -d everywhere.
    """

    sparse = "sparse"
    sparse_distance = "sparse_distance"
    dense = "dense"


class PointWind(Enum):
    """What moves the point besides its action.

    `none`; `fixed`: (-0.04, 0.03) in every step; `episode` and `step`: 0.05 in a direction that is drawn for
    every episode or for every step.
    """

    none = "none"
    fixed = "fixed"
    episode = "episode"
    step = "step"


FIXED_WIND = (-0.04, 0.03)
# How far a wind of random direction moves the point in a step.
WIND_STEP = 0.05


@dataclass
class PointRobotConfig(EnvConfig):
    """Options of PointRobot; the defaults are the Semi-Circle of pomdp-baselines."""

    family: str = "PointRobot"
    max_rollouts_per_task: int = option(2, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(60, "H: environment steps in an episode", low=1)
    goals: GoalPlaces = option(
        GoalPlaces.half_circle,
        "where goals are: on the upper half circle, on the circle, or in [-1, 1] x [-1, 1]",
    )
    circle_radius: float = option(1.0, "the radius of the circle of goals", above=0, high=10)
    test_circle_radius: float | None = option(
        None, "the radius of the circle of goals of test tasks; null: that of training", above=0, high=10
    )
    arcs: GoalArcs = option(
        GoalArcs.same,
        "of goals=circle: which arcs train and which test, see GoalArcs",
    )
    wind: PointWind = option(
        PointWind.none,
        "none, fixed (-0.04, 0.03), or 0.05 in a direction drawn for each episode or step",
    )
    reward: PointReward = option(
        PointReward.sparse,
        "1 in the goal, 1 - distance in the goal, or -distance everywhere",
    )
    start: PointStart = option(
        PointStart.random,
        "where episodes start: (0, 0), in [-1.5, 1.5] x [-0.5, 1.5], or in [-1, 1] x [-1, 1]",
    )
    radius: float = option(0.2, "the distance from the goal that counts as in the goal", above=0, high=1)


_CIRCLE = {"goals": GoalPlaces.circle, "reward": PointReward.dense}
_SHORT = {"start": PointStart.fixed, "max_episode_steps": 20}
_LONG = {"start": PointStart.fixed, "max_episode_steps": 100}
_SQUARE = {"goals": GoalPlaces.square, "start": PointStart.square, "reward": PointReward.dense}


class PointRobot(TaskFamily):
    """A point has to find a goal on the unit upper half circle.

    Task: the goal (x, y) = (cos t, sin t), t uniform in [0, pi]. Other goals: by `goals` on the whole circle
    or in a square (see `GoalPlaces`); by `circle_radius` and `test_circle_radius` at other distances; by
    `arcs` on other arcs in tests than in training. Observation: the position (x, y). Action: two numbers in
    [-1, 1]; a step moves the point by a tenth of them and by the wind, see `PointWind`. Reward: that of the
    position after the step, see `PointReward`. The episode never ends by itself. Info: distance to the goal,
    success (in the goal now). No quantity lags. The wind is no part of the task: the oracle knows a fixed
    wind, and does not know one that is drawn. H=60, k=2. The splits are disjoint.

    Published as: Semi-Circle, PointRobotSparse-v0 of pomdp-baselines (the defaults: reward=sparse,
    start=random, H=60, k=2; there with fixed lists of 80 and 20 tasks, here num_train_tasks=80);
    SparsePointEnv of VariBAD (reward=sparse_distance, start=fixed, H=100, k=3); sparse-point-robot of PEARL
    (start=fixed, H=20, reward=dense in training and reward=sparse in tests; its goals: `published_goals`);
    PointRobot-v0 of pomdp-baselines (goals=square, start=square, reward=dense, H=60); the circles of qrico64
    (goals=circle, reward=dense, H=60, with wind=fixed, episode or step; circle_down_up is arcs=down_up,
    circle_left_right_up_down is arcs=sides, circle_1_2 is test_circle_radius=2; there fixed lists of evenly
    spaced goals in tests, here goals drawn on the same arcs). All of them with radius=0.2.
    """

    Config = PointRobotConfig
    shelf = Shelf.toy
    config: PointRobotConfig
    # Of the published settings, and of the demo (the last one).
    references = (
        Reference(oracle=51.8, random=1.2),
        Reference(oracle=93.4, random=0.6, options={**_LONG, "reward": PointReward.sparse_distance}),
        Reference(oracle=-3.8, random=-20.4, options={**_SHORT, "reward": PointReward.dense}),
        Reference(oracle=13.6, random=0.0, options=_SHORT),
        Reference(oracle=-5.3, random=-67.5, options=_SQUARE),
        Reference(oracle=-9.4, random=-86.6, options=_CIRCLE),
        Reference(oracle=-7.0, random=-74.2, options={**_CIRCLE, "arcs": GoalArcs.down_up}),
        Reference(oracle=-9.3, random=-87.3, options={**_CIRCLE, "arcs": GoalArcs.sides}),
        Reference(oracle=-22.1, random=-132.1, options={**_CIRCLE, "test_circle_radius": 2.0}),
        Reference(oracle=-12.2, random=-137.8, options={**_CIRCLE, "wind": PointWind.fixed}),
        Reference(oracle=-13.4, random=-126.1, options={**_CIRCLE, "wind": PointWind.episode}),
        Reference(oracle=-12.0, random=-87.8, options={**_CIRCLE, "wind": PointWind.step}),
        Reference(oracle=15.4, random=0.0, options={**_SHORT, "radius": 0.4}),
    )

    def __init__(self, config: PointRobotConfig) -> None:
        super().__init__(config)
        # Options that would be ignored are refused.
        if config.arcs is not GoalArcs.same and config.goals is not GoalPlaces.circle:
            raise OptionError(
                f"PointRobot: arcs={config.arcs.name} are parts of the whole circle: they need goals=circle."
            )
        if config.goals is GoalPlaces.square and (
            config.circle_radius != 1.0 or config.test_circle_radius is not None
        ):
            raise OptionError(
                "PointRobot: goals=square has no circle: leave circle_radius and test_circle_radius out."
            )
        self.spec = EnvSpec(
            name="PointRobot",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=INFO_NAMES,
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        if self.config.goals is GoalPlaces.square:
            return 2.0 * split_uniforms(rng, (n, 2), split) - 1.0
        fractions, testing = split_uniforms(rng, (n,), split), split == "test"
        radius = self.config.circle_radius
        if testing and self.config.test_circle_radius is not None:
            radius = self.config.test_circle_radius
        return on_circle(self._angles(fractions, testing), radius)

    def _angles(self, fractions: NDArray[np.float64], testing: bool) -> NDArray[np.float64]:
        """[n] the angles at these fractions, in [0, 1), of the goals' arcs."""
        if self.config.goals is GoalPlaces.half_circle:
            return math.pi * fractions
        if self.config.arcs is GoalArcs.down_up:
            # Tests take [0, pi), training takes [pi, 2 pi).
            return math.pi * fractions + (0.0 if testing else math.pi)
        if self.config.arcs is GoalArcs.sides:
            # Two quarters that lie opposite to each other, around 0 and pi, or for tests around +-pi/2.
            return math.pi * (fractions + 0.5 * (fractions >= 0.5)) + (0.25 if testing else -0.25) * math.pi
        return 2.0 * math.pi * fractions

    def make_shard(self, num_slots: int, threads: int = 1) -> PointRobotShard:
        return PointRobotShard(num_slots, self.config)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        # A wind that is drawn is unknown to the oracle too.
        known_wind = FIXED_WIND if self.config.wind is PointWind.fixed else (0.0, 0.0)
        return towards(task, obs, drift=np.array(known_wind))


class PointRobotShard(PlaneShard):
    """Slots of PointRobot."""

    def __init__(self, num_slots: int, config: PointRobotConfig) -> None:
        super().__init__(num_slots, config.radius)
        self._start, self._wind, self._reward = config.start, config.wind, config.reward
        self._seeds = np.zeros(num_slots, np.uint64)
        self._clock = np.zeros(num_slots, np.int64)

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        self._seeds[slots], self._clock[slots] = seeds, 0
        super().reset(slots, tasks, seeds)

    def start(self, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        if self._start is PointStart.fixed:
            return np.zeros((len(seeds), 2))
        if self._start is PointStart.square:
            return uniforms(seeds, 2) * 2.0 - 1.0
        return uniforms(seeds, 2) * (3.0, 2.0) + (-1.5, -0.5)

    def goal_and_drift(
        self, tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._wind is PointWind.episode:
            # The first two numbers of the seed's stream are the start.
            return tasks, winds_at(uniforms(seeds, 3)[:, 2])
        wind = FIXED_WIND if self._wind is PointWind.fixed else (0.0, 0.0)
        return tasks, np.broadcast_to(wind, tasks.shape)

    def drift(self, at: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        if self._wind is not PointWind.step:
            return super().drift(at)
        # A stream of its own for every step of the episode, keyed by seed and step number.
        self._clock[at] += 1
        return winds_at(uniforms(episode_seeds(self._seeds[at], self._clock[at]), 1)[:, 0])

    def reward(self, distance: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[Any]:
        if self._reward is PointReward.sparse:
            return inside
        if self._reward is PointReward.dense:
            return -distance
        return (1.0 - distance) * inside


def winds_at(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 2] winds in the directions at these fractions of a whole turn."""
    return on_circle(2.0 * math.pi * turns, WIND_STEP)


def published_goals(n: int = 100) -> NDArray[np.float64]:
    """[n, 2] the goals of PEARL's results: evenly spaced from (1, 0) to (-1, 0), both included."""
    return on_circle(np.linspace(0.0, math.pi, n))

"""Wind: a point that has to reach and hold a fixed goal against a constant, unknown wind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms
from envs.meta.toy.plane import ACTION_SPACE, INFO_NAMES, OBS_SPACE, PlaneShard, towards
from utils.options import option

GOAL = (0.0, 1.0)
# The wind moves the point by at most this much in a step, along each axis.
STRONGEST = 0.08


@dataclass
class WindConfig(EnvConfig):
    """Options of Wind; the defaults are Wind-v0 of pomdp-baselines."""

    family: str = "Wind"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(75, "H: environment steps in an episode", low=1)
    radius: float = option(0.03, "the distance from the goal that counts as in the goal", above=0, high=1)


class Wind(TaskFamily):
    """A point has to reach and hold a fixed goal against a constant, unknown wind.

    Task: the wind (wx, wy), uniform in [-0.08, 0.08] x [-0.08, 0.08]. Observation: the position (x, y), from
    (0, 0) in every episode. Action: two numbers in [-1, 1]; x' = x + 0.1 a + w. Reward: 1 within the radius
    0.03 of the goal (0, 1), else 0, of the position after the step. H=75, k=1. The episode never ends by
    itself. Info: distance to the goal, success (in the goal now). No quantity lags.

    Published as Wind-v0 of pomdp-baselines, with 60 fixed tasks (`published_winds`), of which a run took 40
    to train and 20 to test; here num_train_tasks=40 gives as many. The splits are disjoint.
    """

    Config = WindConfig
    shelf = Shelf.toy
    config: WindConfig
    # On the 60 published tasks the oracle gets 63.2.
    references = (Reference(oracle=62.3, random=0.006),)

    def __init__(self, config: WindConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="Wind",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=INFO_NAMES,
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        # Uniform in the square of all winds.
        return STRONGEST * (2.0 * split_uniforms(rng, (n, 2), split) - 1.0)

    def make_shard(self, num_slots: int, threads: int = 1) -> WindShard:
        return WindShard(num_slots, self.config.radius)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        # The oracle knows the wind, so it can compensate it in every step.
        return towards(np.array(GOAL), obs, drift=task)


class WindShard(PlaneShard):
    """Slots of Wind."""

    def start(self, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        return np.zeros((len(seeds), 2))

    def goal_and_drift(
        self, tasks: NDArray[np.float64], seeds: NDArray[np.uint64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # The goal is the same for all tasks; the task is the drift.
        return np.broadcast_to(GOAL, tasks.shape), tasks

    def reward(self, distance: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[Any]:
        # 1 in the goal, else 0.
        return inside


def published_winds() -> NDArray[np.float64]:
    """[60, 2] the winds of the published results: numpy's legacy stream of seed 1337, x and y in turn.

    Every published run drew anew which 40 of them it trained on.
    """
    return np.random.RandomState(1337).uniform(-STRONGEST, STRONGEST, (60, 2))

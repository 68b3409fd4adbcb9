"""TreasureHunt: a treasure somewhere around a mountain, which can be seen from the top."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Obs, Reference, Shard, Shelf, Split, TaskFamily
from envs.meta.kernels import clipped_actions, index_of, split_uniforms
from envs.meta.pictures import DANGER, GOAL, HINT, ROBOT, discs
from envs.meta.toy.plane import ACTION_SPACE, STEP, on_circle, towards
from utils.options import option

# Where every episode starts.
START = (0.0, -1.0)
# The point stays within [-EDGE, EDGE] along both axes.
EDGE = 1.5
# The mountain's radius, and the distance from its middle within which the treasure is seen.
FOOT, TOP = 0.5, 0.1
# The distance from the treasure that counts as at the treasure.
NEAR = 0.1
TREASURE, STEP_COST = 10.0, 5.0
_HIGHEST = np.array([EDGE, EDGE, 1.0, 1.0], np.float32)


@dataclass
class TreasureHuntConfig(EnvConfig):
    """Options of TreasureHunt; the defaults are HyperX's."""

    family: str = "TreasureHunt"
    max_rollouts_per_task: int = option(1, "k: episodes of one task in a trial", low=1)
    max_episode_steps: int = option(100, "H: environment steps in an episode", low=1)
    mountain_height: float = option(
        1.0, "h: the extra cost of a step on the mountain, per unit of distance from its foot", low=0
    )


class TreasureHunt(TaskFamily):
    """A point has to find a treasure around a mountain, which it can see from the top.

    Task: the treasure (x, y) = (cos t, sin t), t uniform in [0, 2 pi). Observation: the position (x, y), from
    (0, -1) in every episode, then the treasure's (x, y) while the point is within 0.1 of the mountain's top
    (0, 0), elsewhere (0, 0). Action: two numbers in [-1, 1]; a step moves by a tenth of them, within [-1.5,
    1.5] x [-1.5, 1.5]. Reward: that of the position after the step, at distance r from the top: on the
    mountain (r <= 0.5) -5 - h (0.5 - r), within 0.1 of the treasure 10, elsewhere -5 max(1, r). H=100, k=1.
    The episode never ends by itself. Info: distance to the treasure, success (at the treasure now). No
    quantity lags.

    Published as TreasureHunt-v0 of HyperX (h=1), whose paper calls it the Mountain Treasure. The splits are
    disjoint.
    """

    Config = TreasureHuntConfig
    shelf = Shelf.toy
    config: TreasureHuntConfig
    references = (Reference(oracle=851.7, random=-568.4),)

    def __init__(self, config: TreasureHuntConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="TreasureHunt",
            obs_space=spaces.Box(-_HIGHEST, _HIGHEST, dtype=np.float32),
            action_space=ACTION_SPACE,
            task_dim=2,
            info_names=("distance", "success"),
            split=Split.disjoint,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return on_circle(2.0 * math.pi * split_uniforms(rng, (n,), split))

    def make_shard(self, num_slots: int, threads: int = 1) -> TreasureHuntShard:
        return TreasureHuntShard(num_slots, self.config.mountain_height)

    def oracle_action(
        self, obs: Obs, task: NDArray[np.float64], info: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Go straight to the treasure, or past the mountain where the treasure lies behind it.

        The detour is on the treasure's side and costs no step more, since an action moves along both axes at
        once.
        """
        assert isinstance(obs, np.ndarray)
        x, y = obs[:, 0].astype(np.float64), obs[:, 1].astype(np.float64)
        # The way is longer along y than along x, so x can wait, and the foot of the mountain lies ahead.
        up = task[:, 1] - y
        behind = (np.abs(up) - 0.9 * NEAR > np.abs(task[:, 0] - x)) & (y * np.sign(up) < FOOT)
        # Beside the mountain, on the treasure's side.
        side = np.where(task[:, 0] < 0, -1.0, 1.0) * np.maximum(np.abs(task[:, 0]), FOOT + 0.01)
        return towards(np.stack([np.where(behind, side, task[:, 0]), task[:, 1]], axis=1), obs)


class TreasureHuntShard(Shard):
    """Slots of TreasureHunt."""

    def __init__(self, num_slots: int, height: float) -> None:
        self._num_slots = num_slots
        self._height = height
        self._position = np.zeros((num_slots, 2))
        self._treasure = np.zeros((num_slots, 2))

    def reset(self, slots: NDArray[np.int64], tasks: NDArray[np.float64], seeds: NDArray[np.uint64]) -> None:
        """Put the points at the start."""
        self._treasure[slots] = tasks
        self._position[slots] = START
        self._write(slots, self._position[slots])

    def step(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Move the points, within the edges."""
        at = index_of(slots, self._num_slots)
        position = self._position[at] + STEP * clipped_actions(actions, slots)
        np.minimum(np.maximum(position, -EDGE), EDGE, out=position)
        self._position[at] = position
        from_top, distance = self._write(at, position)
        # Off the mountain: the treasure, or a cost that grows with the distance from the middle.
        elsewhere = np.where(distance <= NEAR, TREASURE, -STEP_COST * np.maximum(1.0, from_top))
        # On the mountain: a cost that grows towards the top, so that to see the treasure is not free.
        self.rows.reward[at] = np.where(
            from_top <= FOOT, self._height * (from_top - FOOT) - STEP_COST, elsewhere
        )
        self.rows.terminated[at] = False
        self.rows.truncated[at] = False

    def _write(
        self, at: NDArray[np.int64] | slice, position: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Write observation and info; returns the distances from the top and from the treasure."""
        treasure = self._treasure[at]
        from_top, distance = _length(position), _length(position - treasure)
        obs = self.rows.obs
        assert isinstance(obs, np.ndarray)
        obs[at, :2] = position
        # The treasure is seen from the top only.
        obs[at, 2:] = np.where((from_top < TOP)[:, None], treasure, 0.0)
        self.rows.info[at, 0] = distance
        self.rows.info[at, 1] = distance <= NEAR
        return from_top, distance

    def render(self, slot: int) -> NDArray[np.uint8]:
        """The mountain in red with its top, the treasure in green, the walker in dark blue."""
        treasure, walker = ((float(x), float(y)) for x, y in (self._treasure[slot], self._position[slot]))
        return discs(
            [
                ((0.0, 0.0), FOOT, DANGER),
                ((0.0, 0.0), TOP, HINT),
                (treasure, NEAR, GOAL),
                (walker, 0.06, ROBOT),
            ]
        )


def _length(offset: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] the lengths of [n, 2] offsets."""
    # Square roots are correctly rounded everywhere, so every machine has the same bits.
    return np.sqrt(offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1])

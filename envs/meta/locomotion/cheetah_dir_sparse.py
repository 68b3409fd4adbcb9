"""CheetahDirSparse: CheetahDir that rewards running only far from the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_choices
from envs.meta.locomotion.cheetah import ACTION_SPACE, OBS_SPACE
from envs.meta.locomotion.cheetah_dir import DIRECTIONS, CheetahDirShard
from envs.meta.locomotion.mujoco_shard import SlotIndex
from utils.options import option


@dataclass
class CheetahDirSparseConfig(EnvConfig):
    """Options of CheetahDirSparse; the defaults are HalfCheetahDirSparse-v0 of HyperX."""

    family: str = "CheetahDirSparse"
    threshold: float = option(
        5.0,
        "distance from the start, in metres, beyond which running is rewarded",
        above=0,
    )


class CheetahDirSparse(TaskFamily):
    """The half cheetah has to find its direction, and is rewarded only far from its start.

    Task: the direction d, -1 or +1. Observation, 20 numbers: qpos[1:] (8), qvel (9), the torso's x, y, z (3).
    Action: six torques in [-1, 1]. Reward: d v - 0.05 |a|^2 where the torso's |x| >= `threshold` (5), else -
    0.05 |a|^2, where v is the change of qpos[0] in the step divided by the step's 0.05 s (5 frames of 0.01
    s). So beyond the threshold on the wrong side, to run on costs and to run back pays. Terminated: only when
    the simulation diverged (its v is taken as 0). H=200, k=2. Episodes start as those of CheetahDir. Info:
    velocity (d v), x (qpos[0]), success (beyond the threshold on the right side now).

    Lagged quantities: the torso's x, y, z, in the observation and in the comparison with the threshold, are
    taken from `xpos`, which after a step describes the state before MuJoCo's last evaluation. The rest of the
    observation, and v, come from qpos and qvel, which are current. The published environments do the same.

    Published as HalfCheetahDirSparse-v0 of HyperX and hyper (the defaults), and HalfCheetahDirSparseTen-v0 of
    hyper (threshold=10, H=400). HyperX puts the torso first in the observation and shows qpos[0] too, which
    repeats it. The model is Gymnasium's half_cheetah.xml. The two directions are all the tasks there are, so
    the splits are shared.
    """

    Config = CheetahDirSparseConfig
    shelf = Shelf.locomotion
    config: CheetahDirSparseConfig
    references = (Reference(oracle=None, random=-20, tasks=200),)

    def __init__(self, config: CheetahDirSparseConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="CheetahDirSparse",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1,
            info_names=("velocity", "x", "success"),
            split=Split.shared,
            reference=self.measured_reference(),
            success="success",
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return split_choices(rng, n, DIRECTIONS, split)[:, None]

    def make_shard(self, num_slots: int, threads: int = 1) -> CheetahDirSparseShard:
        return CheetahDirSparseShard(num_slots, threads, self.config.threshold)


class CheetahDirSparseShard(CheetahDirShard):
    """Slots of CheetahDirSparse."""

    def __init__(self, num_slots: int, threads: int, threshold: float) -> None:
        super().__init__(num_slots, threads)
        self._threshold = threshold

    def speed_reward(self, at: SlotIndex, velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        # The place that counts is the torso's lagged one, as published; qpos[0] would be current.
        x = self.torso[at, 0]
        self.rows.info[at, 2] = self.task[at] * x >= self._threshold
        # `super().speed_reward` also writes the velocity into info, whether or not it is rewarded.
        return np.where(np.abs(x) >= self._threshold, super().speed_reward(at, velocity), 0.0)

"""HalfCheetahVel: the half cheetah that has to find out how fast it is to run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.base import EnvConfig, EnvSpec, Reference, Shelf, Split, TaskFamily
from envs.meta.kernels import split_uniforms
from envs.meta.locomotion.cheetah import ACTION_SPACE, OBS_SPACE, CheetahShard
from envs.meta.locomotion.mujoco_shard import SlotIndex
from utils.options import option


@dataclass
class HalfCheetahVelConfig(EnvConfig):
    """Options of HalfCheetahVel; the defaults are HalfCheetahVel-v0 of VariBAD and pomdp-baselines."""

    family: str = "HalfCheetahVel"
    highest_velocity: float = option(
        3.0, "target velocities are uniform from 0 to this, in metres per second", above=0
    )


class HalfCheetahVel(TaskFamily):
    """The half cheetah has to find out how fast to run.

    Task: the velocity w, uniform in [0, 3] (`highest_velocity`). Observation, 20 numbers: qpos[1:] (8), qvel
    (9), the torso's x, y, z (3). Action: six torques in [-1, 1]. Reward: -|v - w| - 0.05 |a|^2, where v is
    the change of qpos[0] in the step divided by the step's 0.05 s (5 frames of 0.01 s). Terminated: only when
    the simulation diverged (MuJoCo resets it silently; its v is taken as 0). H=200, k=2. Every episode starts
    at MuJoCo's default pose with noise: U(-0.1, 0.1) on qpos, N(0, 0.1) on qvel. Info: velocity (v), x
    (qpos[0]).

    Lagged quantities: the torso's x, y, z are taken from `xpos`, which after a step describes the state
    before MuJoCo's last evaluation. The rest of the observation, and v, come from qpos and qvel, which are
    current. The published environments do the same.

    Published as HalfCheetahVel-v0 of VariBAD (a new task for every trial), of pomdp-baselines
    (num_train_tasks=100, num_eval_tasks=20), and as cheetah-vel of PEARL (100 and 30). Some of their
    docstrings say [0, 2], but their code says [0, 3]. AMAGO's has the first 17 numbers only, H=1000 and k=1.
    The model is Gymnasium's half_cheetah.xml. The splits are disjoint.
    """

    Config = HalfCheetahVelConfig
    shelf = Shelf.locomotion
    config: HalfCheetahVelConfig
    references = (Reference(oracle=None, random=-366, tasks=200),)

    def __init__(self, config: HalfCheetahVelConfig) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name="HalfCheetahVel",
            obs_space=OBS_SPACE,
            action_space=ACTION_SPACE,
            task_dim=1,
            info_names=("velocity", "x"),
            split=Split.disjoint,
            reference=self.measured_reference(),
        )

    def sample_tasks(self, rng: np.random.Generator, n: int, split: str) -> NDArray[np.float64]:
        return self.config.highest_velocity * split_uniforms(rng, (n, 1), split)

    def make_shard(self, num_slots: int, threads: int = 1) -> HalfCheetahVelShard:
        return HalfCheetahVelShard(num_slots, threads)


class HalfCheetahVelShard(CheetahShard):
    """Slots of HalfCheetahVel."""

    def speed_reward(self, at: SlotIndex, velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        # The reward is greatest, 0, at exactly the velocity of the task.
        self.rows.info[at, 0] = velocity
        return -np.abs(velocity - self.task[at])

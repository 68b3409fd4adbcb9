"""Walker2DRandParams: the MuJoCo walker that has to find out how it is built."""

from __future__ import annotations

from dataclasses import dataclass

from envs.base import EnvConfig, Reference
from envs.meta.locomotion.rand_params import WALKER, RandParams


@dataclass
class Walker2DRandParamsConfig(EnvConfig):
    """Options of Walker2DRandParams; the defaults are the published ones."""

    family: str = "Walker2DRandParams"


class Walker2DRandParams(RandParams):
    """The MuJoCo walker has to find out how it is built.

    Task: 65 exponents e, each uniform in [-3, 3], one for every number of body_mass (8), body_inertia (24),
    geom_friction (24) and dof_damping (9), in this order. The number is multiplied by 1.5^e, a damping by
    1.3^e; those that are 0 in the model stay 0. Observation, 17 numbers: qpos[1:] (8), qvel (9) clipped to
    [-10, 10]. Action: six torques in [-1, 1]. Reward: v + 1 - 0.001 |a|^2, where v is the change of qpos[0]
    in the step divided by the step's 0.008 s (4 frames). The + 1 is paid on the last row of a fall too.
    Terminated: when the height is not within (0.8, 2) or the angle not within +-1, or when the simulation
    diverged (its v is taken as 0). H=200, k=2. Every episode starts at MuJoCo's default pose with noise:
    U(-0.005, 0.005) on qpos and qvel. Info: velocity and x. Nothing lags: all quantities come from qpos and
    qvel.

    Published as Walker2DRandParams-v0 of rand_param_envs, as in PEARL and VariBAD, which multiplied the
    fields and did not update the constants that MuJoCo derives from masses (mj_setConst); the same is done
    here. Their task was the products, here it is the exponents. The model is that of Gymnasium's Walker2d-v5,
    whose feet have equal frictions, so returns published with MuJoCo 1.31 are not comparable. The splits are
    disjoint.
    """

    Config = Walker2DRandParamsConfig
    # Everything but the robot and its scores is in `RandParams`.
    robot = WALKER
    references = (Reference(oracle=None, random=3.9, tasks=200),)

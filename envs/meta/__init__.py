"""Task families: distributions over tasks, and the environments that play them.

Every family is one file under the contract of `envs/base.py`, in the folder of its shelf. To add one, write a
file with a subclass of `TaskFamily` and its `Config`, and a line in the registry below. The tests over the
registry then test it, and `make_env`, `make_parallel_env` and `env=<Name>` know it.
"""

import gymnasium

from envs.base import TaskFamily
from envs.meta.agents.grid_world_multi_agent import GridWorldMultiAgent
from envs.meta.agents.repeated_game import RepeatedGame
from envs.meta.cyber.cyber_defence import CyberDefence
from envs.meta.grid.dark_key_door import DarkKeyDoor
from envs.meta.grid.delayed_catch import DelayedCatch
from envs.meta.grid.grid_navi import GridNavi
from envs.meta.grid.key_to_door import KeyToDoor
from envs.meta.grid.meta_frozen_lake import MetaFrozenLake
from envs.meta.grid.t_maze import TMazeActive, TMazePassive
from envs.meta.grid.t_maze_noise import TMazeNoise
from envs.meta.grid.visual_match import PassiveVisualMatch
from envs.meta.locomotion.ant_dir import AntDir
from envs.meta.locomotion.ant_goal import AntGoal
from envs.meta.locomotion.body_params import BodyParams
from envs.meta.locomotion.cheetah_dir import CheetahDir
from envs.meta.locomotion.cheetah_dir_sparse import CheetahDirSparse
from envs.meta.locomotion.half_cheetah_vel import HalfCheetahVel
from envs.meta.locomotion.hopper_rand_params import HopperRandParams
from envs.meta.locomotion.humanoid_dir import HumanoidDir
from envs.meta.locomotion.walker2d_rand_params import Walker2DRandParams
from envs.meta.mixtures.mixture import Mixture
from envs.meta.third_party.cyborg import CybORG
from envs.meta.third_party.gymnasium_family import GymnasiumFamily
from envs.meta.third_party.meta_world import MetaWorld
from envs.meta.third_party.openenv import OpenEnv
from envs.meta.third_party.petting_zoo import PettingZoo
from envs.meta.toy.point_robot import PointRobot
from envs.meta.toy.room_navi import RoomNavi
from envs.meta.toy.treasure_hunt import TreasureHunt
from envs.meta.toy.wind import Wind

# The families by the name that users type.
FAMILIES: dict[str, type[TaskFamily]] = {
    "PointRobot": PointRobot,
    "RoomNavi": RoomNavi,
    "TreasureHunt": TreasureHunt,
    "Wind": Wind,
    "AntDir": AntDir,
    "AntGoal": AntGoal,
    "CheetahDir": CheetahDir,
    "CheetahDirSparse": CheetahDirSparse,
    "HalfCheetahVel": HalfCheetahVel,
    "HumanoidDir": HumanoidDir,
    "Walker2DRandParams": Walker2DRandParams,
    "HopperRandParams": HopperRandParams,
    "BodyParams": BodyParams,
    "DarkKeyDoor": DarkKeyDoor,
    "DelayedCatch": DelayedCatch,
    "GridNavi": GridNavi,
    "KeyToDoor": KeyToDoor,
    "MetaFrozenLake": MetaFrozenLake,
    "PassiveVisualMatch": PassiveVisualMatch,
    "TMazeActive": TMazeActive,
    "TMazeNoise": TMazeNoise,
    "TMazePassive": TMazePassive,
    "CyberDefence": CyberDefence,
    "CybORG": CybORG,
    "RepeatedGame": RepeatedGame,
    "Mixture": Mixture,
    "GridWorldMultiAgent": GridWorldMultiAgent,
    "Gymnasium": GymnasiumFamily,
    "MetaWorld": MetaWorld,
    "OpenEnv": OpenEnv,
    "PettingZoo": PettingZoo,
}

# Every family is also a Gymnasium environment, for `gymnasium.make`.
for _name, _family in FAMILIES.items():
    gymnasium.register(
        f"Retrial/{_name}-v{_family.version}",
        "envs.meta.make_env:make_env",
        vector_entry_point="envs.interop.vector_env:make_vector_env",
        kwargs={"env_id": _name, "episodes_per_task": None},
    )

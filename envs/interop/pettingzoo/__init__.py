"""Faces of PettingZoo: its environments as one agent of Gymnasium, and many of them stepped by workers."""

from envs.interop.pettingzoo.ego import EgoWrapper
from envs.interop.pettingzoo.flatten import FlattenMultiAgentWrapper
from envs.interop.pettingzoo.vector import AsyncPettingZooVecEnv

__all__ = ["AsyncPettingZooVecEnv", "EgoWrapper", "FlattenMultiAgentWrapper"]

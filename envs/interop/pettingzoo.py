"""Faces of PettingZoo: an environment of several agents as one of Gymnasium."""

from envs.interop.pettingzoo_flat import FlattenMultiAgentWrapper

__all__ = ["FlattenMultiAgentWrapper"]

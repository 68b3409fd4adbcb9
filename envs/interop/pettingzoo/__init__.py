"""Faces of PettingZoo: its environments as one agent of Gymnasium, and many of them stepped by workers."""

from typing import TYPE_CHECKING, Any

from envs.interop.pettingzoo.ego import EgoWrapper
from envs.interop.pettingzoo.flatten import FlattenMultiAgentWrapper

if TYPE_CHECKING:
    from envs.interop.pettingzoo.vector import AsyncPettingZooVecEnv

__all__ = ["AsyncPettingZooVecEnv", "EgoWrapper", "FlattenMultiAgentWrapper"]


def __getattr__(name: str) -> Any:
    # It brings the backends, which the family PettingZoo, another reader of this package, must not import.
    if name == "AsyncPettingZooVecEnv":
        from envs.interop.pettingzoo.vector import AsyncPettingZooVecEnv

        return AsyncPettingZooVecEnv
    raise AttributeError(f"There is no {name!r} in {__name__}.")

"""Rollouts of different lengths as tensors, for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from envs.remote.rollouts import Rollout
from utils.options import OptionError


@dataclass(frozen=True)
class PaddedRollouts:
    """Rollouts side by side, time first, as everywhere here: [T, B, ...]. Behind an end are zeros."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    dones: Tensor
    # Where a rollout has a step.
    valid: Tensor
    # [B, ...] what a value is bootstrapped from where an episode was cut, and not ended.
    final_observations: Tensor
    terminated: Tensor


def pad(
    rollouts: Sequence[Rollout],
    observation: Callable[[Any], ArrayLike] = np.asarray,
    action: Callable[[Any], ArrayLike] = np.asarray,
) -> PaddedRollouts:
    """Rollouts as tensors; the functions make numbers of an observation and of an action.

    pad(rollouts, lambda obs: obs["board"], lambda action: action["column"])
    """
    steps = max((rollout.episode_length for rollout in rollouts), default=0)
    if not steps:
        raise OptionError("pad() needs a rollout with one step at least.")

    def tensor(columns: list[Any]) -> Tensor:
        return torch.from_numpy(_side_by_side(columns, steps))

    finals = np.stack([_numbers(observation(one.final_observation)) for one in rollouts])
    return PaddedRollouts(
        tensor([[observation(seen) for seen in one.observations] for one in rollouts]),
        tensor([[action(chosen) for chosen in one.actions] for one in rollouts]),
        tensor([one.rewards for one in rollouts]),
        tensor([one.dones for one in rollouts]),
        tensor([[True] * one.episode_length for one in rollouts]),
        torch.from_numpy(finals),
        torch.tensor([one.terminated for one in rollouts]),
    )


def _side_by_side(columns: list[list[ArrayLike]], steps: int) -> NDArray[Any]:
    """[T, B, ...] of B lists of different lengths."""
    arrays = [_numbers(np.stack([np.asarray(one) for one in column])) for column in columns if column]
    padded = np.zeros((steps, len(columns), *arrays[0].shape[1:]), arrays[0].dtype)
    filled = iter(arrays)
    for b, column in enumerate(columns):
        if column:
            padded[: len(column), b] = next(filled)
    return padded


def _numbers(value: ArrayLike) -> NDArray[Any]:
    """An array that a network reads: real numbers are float32."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" else array

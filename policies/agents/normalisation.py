"""Normalisation: observations by their running mean and deviation, rewards by the running deviation of the
discounted return.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from buffers.base import Batch
from envs.base import ObsSpace
from envs.interop.spaces import MASK_KEY
from policies.agents.base import AgentConfig, PolicyRows

FARTHEST = 10.0
"""Where networks see normalised numbers cut off: what hardly ever changes, or is hardly ever paid, would
otherwise be huge when it is.
"""
LARGEST_REWARD = 100.0
"""Where normalised rewards are cut off before anything is learned from them. In deviations of the return, a
reward that comes once in T rows is about as large as the root of T: cut like what networks see, all payments
at the ends of long trials would be worth the same.
"""
SMALLEST = 1e-4
"""Deviation that is divided by at least."""

Read = TypeVar("Read", Batch, PolicyRows)


def farthest_reward(config: AgentConfig) -> float:
    """Where networks see rewards cut off."""
    return FARTHEST if config.normalise_reward else math.inf


class Normaliser(nn.Module):
    """Applied to all rows that an agent's networks read, those that it acts on and those that it learns from
    alike.

    It learns from whole trials by `update` and from nothing else, so evaluation changes nothing. Left as
    they are: pictures, the mask of actions, and numbers that their space keeps within [-1, 1], such as the
    new-episode flag, which would be huge whenever it is up.
    """

    def __init__(self, space: ObsSpace, *, obs: bool, reward: bool) -> None:
        super().__init__()
        self._reward = reward
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
        vectors = {
            key: part
            for key, part in parts.items()
            if isinstance(part, spaces.Box) and key != MASK_KEY and len(part.shape) < 3
        }
        self._open = (
            {key: torch.from_numpy(~((part.low >= -1) & (part.high <= 1))) for key, part in vectors.items()}
            if obs
            else {}
        )
        # In float64 and on the CPU wherever the networks are: not every device has float64, and a count of
        # rows outgrows float32.
        self._moments = {key: Moments.of(part.shape) for key, part in vectors.items()} if obs else {}
        self._return = Moments.of(())
        self._names = {
            key: (f"shift{index}", f"scale{index}") for index, key in enumerate(self._open)
        }  # not every key could name a buffer
        for key, (shift, scale) in self._names.items():
            self.register_buffer(shift, torch.zeros(self._open[key].shape), persistent=False)
            self.register_buffer(scale, torch.ones(self._open[key].shape), persistent=False)
        self.register_buffer("reward_scale", torch.ones(()), persistent=False)

    def forward(self, inputs: Read) -> Read:
        """The same rows, normalised."""
        if self._names:
            obs = inputs.obs
            parts = {
                key: self._centred(key, obs[key] if isinstance(obs, dict) else obs) for key in self._names
            }
            inputs = replace(inputs, obs={**obs, **parts} if isinstance(obs, dict) else parts[""])
        if not self._reward:
            return inputs
        return replace(
            inputs,
            reward=(inputs.reward * self.get_buffer("reward_scale")).clamp_(-LARGEST_REWARD, LARGEST_REWARD),
        )

    def _centred(self, key: str, values: Tensor) -> Tensor:
        shift, scale = self._names[key]
        return torch.addcmul(self.get_buffer(shift), values.float(), self.get_buffer(scale)).clamp_(
            -FARTHEST, FARTHEST
        )

    @torch.no_grad()
    def update(self, batch: Batch, discount: float) -> None:
        """Learn from the rows of whole trials, as they came."""
        valid = batch.valid
        for key, moments in self._moments.items():
            values = batch.obs[key] if isinstance(batch.obs, dict) else batch.obs
            moments.add(values[valid])
        if self._reward:
            self._return.add(discounted_returns(batch, discount)[valid.cpu()])
        self._refresh()

    def _refresh(self) -> None:
        for key, (shift, scale) in self._names.items():
            moments, touched = self._moments[key], self._open[key]
            factor = torch.where(touched, 1.0 / moments.deviation(), 1.0)
            self.get_buffer(scale).copy_(factor)
            self.get_buffer(shift).copy_(torch.where(touched, -moments.mean * factor, 0.0))
        deviation = self._return.deviation()
        # As long as no trial has brought anything else than another, rewards are left as they are.
        self.get_buffer("reward_scale").copy_(torch.where(deviation > SMALLEST, 1.0 / deviation, 1.0))

    def get_extra_state(self) -> dict[str, Any]:
        """For `state_dict`: all that has been learned."""
        return {
            "obs": {key: moments.state() for key, moments in self._moments.items()},
            "return": self._return.state(),
        }

    def set_extra_state(self, state: Any) -> None:
        """The inverse."""
        for key, moments in self._moments.items():
            moments.load(state["obs"][key])
        self._return.load(state["return"])
        self._refresh()


class Moments:
    """Count, mean and sum of squared deviations, taken in batch by batch (Chan et al., 1979)."""

    def __init__(self, count: float, mean: Tensor, squares: Tensor) -> None:
        self.count, self.mean, self.squares = count, mean, squares

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Moments:
        """Of nothing yet."""
        return cls(0.0, torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """[n, ...] more values."""
        if not len(values):
            return
        values = values.detach().cpu().double()
        count, mean = float(len(values)), values.mean(0)
        apart, total = mean - self.mean, self.count + count
        self.squares = (
            self.squares + (values - mean).square().sum(0) + apart.square() * (self.count * count / total)
        )
        self.mean = self.mean + apart * (count / total)
        self.count = total

    def deviation(self) -> Tensor:
        """1 before there is anything to go by, and never 0."""
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.squares / self.count).sqrt().clamp(min=SMALLEST)

    def state(self) -> dict[str, Any]:
        """Plain numbers and tensors."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load(self, state: dict[str, Any]) -> None:
        """The inverse."""
        self.count, self.mean, self.squares = (
            float(state["count"]),
            state["mean"].cpu().clone(),
            state["squares"].cpu().clone(),
        )


def discounted_returns(batch: Batch, discount: float) -> Tensor:
    """[T, B] what each trial has brought up to a row, the past discounted: R_t = r_t + gamma R_{t-1}, from 0
    at its start.
    """
    rewards = batch.reward.detach().cpu().double().numpy()
    kept = np.where(
        batch.trial_start.cpu().numpy(), 0.0, np.where(batch.episode_start.cpu().numpy(), 1.0, discount)
    )
    found, sofar = np.empty_like(rewards), np.zeros(rewards.shape[1])
    for t in range(len(rewards)):
        found[t] = sofar = rewards[t] + kept[t] * sofar
    return torch.from_numpy(found)

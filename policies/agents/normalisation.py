"""Normalisation: observations by mean and deviation, rewards by the deviation of the discounted return."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from buffers.base import Batch, Obs
from envs.base import ObsSpace
from envs.interop.spaces import MASK_KEY
from policies.agents.base import AgentConfig, Inputs, PolicyRows

# The bound of normalised numbers that networks read.
#
# A number that hardly ever changes, or a reward that is hardly ever paid, would otherwise be huge when it
# does.
FARTHEST = 10.0
# The bound of normalised rewards that losses read.
#
# In deviations of the return, a reward that comes once in T rows is about as large as the root of T. With the
# bound of the networks, all rewards at the ends of long trials would be worth the same.
LARGEST_REWARD = 100.0
# The smallest deviation by which numbers are divided.
SMALLEST = 1e-4

Read = TypeVar("Read", Batch, PolicyRows)


def farthest_reward(config: AgentConfig) -> float:
    """The bound of the rewards that networks read."""
    return FARTHEST if config.normalise_reward else math.inf


class Normaliser(nn.Module):
    """Normalises all rows that an agent's networks read, whether it acts on them or learns from them.

    It learns from whole trials by `update` and from nothing else, so evaluation changes nothing. Pictures,
    the mask of actions, and numbers that their space holds within [-1, 1] are left as they are. The
    new-episode flag is such a number: normalised, it would be huge whenever it is 1.
    """

    def __init__(self, space: ObsSpace, *, obs: bool, reward: bool, standard: bool = False) -> None:
        """`standard`: memories read rewards by their own mean and deviation."""
        super().__init__()
        self._reward = reward
        # The parts of an observation that are normalised, by key; one array alone has the key "".
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
        vectors = {
            key: part
            for key, part in parts.items()
            if obs and isinstance(part, spaces.Box) and key != MASK_KEY and len(part.shape) < 3
        }
        # Which of their numbers are normalised: those that their space does not hold within [-1, 1].
        self._unbounded = {
            key: torch.from_numpy(~((part.low >= -1) & (part.high <= 1))) for key, part in vectors.items()
        }
        # In float64 and on the CPU wherever the networks are: not every device has float64, and a count of
        # rows outgrows float32.
        self._moments = {key: Moments.of(part.shape) for key, part in vectors.items()}
        self._return = Moments.of(())
        # Of the rewards that steps have brought, where memories read them by these.
        self._received = Moments.of(()) if standard else None
        # What the moments amount to is a shift and a scale, on the device of the networks. They are numbered,
        # since not every key could name a buffer; and not saved, since they follow from the moments.
        self._names = {key: (f"shift{index}", f"scale{index}") for index, key in enumerate(vectors)}
        for key, (shift, scale) in self._names.items():
            self.register_buffer(shift, torch.zeros(self._unbounded[key].shape), persistent=False)
            self.register_buffer(scale, torch.ones(self._unbounded[key].shape), persistent=False)
        self.register_buffer("reward_scale", torch.ones(()), persistent=False)
        # From rewards as losses read them to those that memories read.
        self.register_buffer("standard_shift", torch.zeros(()), persistent=False)
        self.register_buffer("standard_scale", torch.ones(()), persistent=False)

    def forward(self, inputs: Read) -> Read:
        """The same rows, normalised."""
        if self._names:
            parts = _parts_of(inputs.obs)
            normalised = parts | {key: self._normalised(key, parts[key]) for key in self._names}
            inputs = replace(inputs, obs=normalised if isinstance(inputs.obs, dict) else normalised[""])
        if not self._reward:
            return inputs
        # Rewards are scaled and not shifted: a shift would change which policy is best.
        reward = inputs.reward * self.get_buffer("reward_scale")
        return replace(inputs, reward=reward.clamp_(-LARGEST_REWARD, LARGEST_REWARD))

    def read_reward(self, inputs: Inputs) -> Tensor:
        """The rewards of normalised rows as a memory reads them."""
        # Losses read them uncut; only networks are kept from huge numbers.
        if self._received is None:
            return inputs.reward.clamp(-FARTHEST, FARTHEST) if self._reward else inputs.reward
        shift, scale = self.get_buffer("standard_shift"), self.get_buffer("standard_scale")
        standard = torch.addcmul(shift, inputs.reward, scale).clamp_(-FARTHEST, FARTHEST)
        # No step has brought the reward of a start.
        return torch.where(inputs.episode_start, 0.0, standard)

    def _normalised(self, key: str, values: Tensor) -> Tensor:
        shift, scale = (self.get_buffer(name) for name in self._names[key])
        # (x - mean) / deviation, as shift + x scale
        return torch.addcmul(shift, values.float(), scale).clamp_(-FARTHEST, FARTHEST)

    @torch.no_grad()
    def update(self, batch: Batch, discount: float) -> None:
        """Learn from the rows of whole trials, as they were collected."""
        valid, parts = batch.valid, _parts_of(batch.obs)
        for key, moments in self._moments.items():
            moments.add(parts[key][valid])
        if self._reward:
            self._return.add(discounted_returns(batch, discount)[valid.cpu()])
        if self._received is not None:
            self._received.add(batch.reward[valid & ~batch.episode_start])
        self._refresh()

    def _refresh(self) -> None:
        """Shifts and scales from the moments; numbers that are not normalised have shift 0 and scale 1."""
        for key, (shift, scale) in self._names.items():
            moments, unbounded = self._moments[key], self._unbounded[key]
            factor = torch.where(unbounded, 1.0 / moments.deviation(), 1.0)
            self.get_buffer(scale).copy_(factor)
            self.get_buffer(shift).copy_(torch.where(unbounded, -moments.mean * factor, 0.0))
        deviation = self._return.deviation()
        # As long as all returns are equal, rewards are left as they are.
        scale = torch.where(deviation > SMALLEST, 1.0 / deviation, 1.0)
        self.get_buffer("reward_scale").copy_(scale)
        if self._received is not None:
            # (r - mean) / deviation, where r = (scaled r) / scale; without scaled rewards the scale is 1
            own = self._received.deviation()
            self.get_buffer("standard_shift").copy_(-self._received.mean / own)
            self.get_buffer("standard_scale").copy_(1.0 / (own * scale))

    def get_extra_state(self) -> dict[str, Any]:
        """The moments, which `state_dict` saves."""
        return {
            "obs": {key: moments.state() for key, moments in self._moments.items()},
            "return": self._return.state(),
            **({} if self._received is None else {"received": self._received.state()}),
        }

    def set_extra_state(self, state: Any) -> None:
        """Take over moments that `state_dict` saved."""
        for key, moments in self._moments.items():
            moments.load(state["obs"][key])
        self._return.load(state["return"])
        if self._received is not None:
            self._received.load(state["received"])
        self._refresh()


class Moments:
    """Count, mean and sum of squared deviations, taken in batch by batch (Chan et al., 1979)."""

    def __init__(self, count: float, mean: Tensor, squares: Tensor) -> None:
        self.count, self.mean, self.squares = count, mean, squares

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Moments:
        """The moments of no values."""
        return cls(0.0, torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """Take in more values, [n, ...]."""
        if not len(values):
            return
        # The moments of both sets from those of each: M = M_1 + M_2 + (mean_2 - mean_1)^2 n_1 n_2 / n.
        values = values.detach().cpu().double()
        count, mean = float(len(values)), values.mean(0)
        difference, total = mean - self.mean, self.count + count
        between = difference.square() * (self.count * count / total)
        self.squares = self.squares + (values - mean).square().sum(0) + between
        self.mean = self.mean + difference * (count / total)
        self.count = total

    def deviation(self) -> Tensor:
        """The standard deviation, never 0; 1 where there are fewer than two values."""
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.squares / self.count).sqrt().clamp(min=SMALLEST)

    def state(self) -> dict[str, Any]:
        """Plain numbers and tensors."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.count = float(state["count"])
        self.mean, self.squares = state["mean"].cpu().clone(), state["squares"].cpu().clone()


def discounted_returns(batch: Batch, discount: float) -> Tensor:
    """[T, B] the rewards of each trial up to a row, the past discounted: R_t = r_t + gamma R_{t-1}."""
    rewards = batch.reward.detach().cpu().double().numpy()
    # A trial starts from 0. From an episode's end to the next start no step passes, so nothing is discounted.
    factors = np.where(batch.episode_start.cpu().numpy(), 1.0, discount)
    factors = np.where(batch.trial_start.cpu().numpy(), 0.0, factors)
    returns, before = np.empty_like(rewards), np.zeros(rewards.shape[1])
    for t in range(len(rewards)):
        returns[t] = before = rewards[t] + factors[t] * before
    return torch.from_numpy(returns)


def _parts_of(obs: Obs) -> dict[str, Tensor]:
    return obs if isinstance(obs, dict) else {"": obs}

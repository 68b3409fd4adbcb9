"""Actions: how networks read, choose and disturb actions; all that depends on their kind is here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from envs.base import ActionSpace
from policies.agents.base import Distribution, Inputs
from policies.agents.distributions import Categorical, IndependentChoices, TanhGaussian

# Bounds of the log-deviation of a tanh-Gaussian, as in the published SAC.
LOG_STD_RANGE = (-20.0, 2.0)


class ActionKind(Enum):
    """The kinds of actions that an algorithm may serve."""

    continuous = "continuous"
    discrete = "discrete"
    multi_discrete = "multi-discrete"


class Actions(ABC):
    """One action space."""

    kind: ClassVar[ActionKind]
    # Numbers of an action where a network reads it.
    dim: int
    # Numbers that a policy's network gives for a distribution.
    outputs: int

    @abstractmethod
    def previous(self, inputs: Inputs) -> Tensor:
        """[..., dim] the previous action as networks read it; zeros where none led to the row."""

    @abstractmethod
    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        """The distribution of network outputs [..., outputs]; `mask` [..., n] is 0 where not allowed."""

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """[num_rows, ...] the noise that `Distribution.sample` needs for a whole trial, in one draw."""


class Continuous(Actions):
    """A vector in [-1, 1]^A, by a tanh-Gaussian."""

    kind = ActionKind.continuous

    def __init__(self, space: spaces.Box) -> None:
        self.dim = space.shape[0]
        self.outputs = 2 * self.dim

    def previous(self, inputs: Inputs) -> Tensor:
        """The vector as it is; it is 0 on start rows."""
        return inputs.prev_action

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> TanhGaussian:
        """A tanh-Gaussian, from mean and log-deviation side by side."""
        # Without bounds one bad update can make the deviation so large that no other repairs it.
        mean, log_std = outputs.chunk(2, -1)
        return TanhGaussian(mean, log_std.clamp(*LOG_STD_RANGE))

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """Standard normal noise."""
        return rng.standard_normal((num_rows, self.dim), dtype=np.float32)


class Choices(Actions):
    """One of n, by a categorical distribution; one-hot where a network reads it."""

    kind = ActionKind.discrete

    def __init__(self, space: spaces.Discrete) -> None:
        self.start, self.dim = int(space.start), int(space.n)
        self.outputs = self.dim

    def index(self, action: Tensor) -> Tensor:
        """The number of an action, from 0."""
        return action - self.start

    def taken(self, values: Tensor, action: Tensor) -> Tensor:
        """[N, M, n] -> [N, M]: the numbers that belong to these actions, [M]."""
        return values.gather(-1, self.index(action).expand(values.shape[:-1])[..., None]).squeeze(-1)

    def previous(self, inputs: Inputs) -> Tensor:
        """One-hot, and zeros where no action led to the row."""
        # On start rows the previous action is stored as 0, which may be a choice like any other.
        return (self.one_hot(inputs.prev_action) & ~inputs.episode_start[..., None]).float()

    def one_hot(self, action: Tensor) -> Tensor:
        """[..., n] bool, true at the action."""
        return self.index(action)[..., None] == torch.arange(self.dim, device=action.device)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Categorical:
        """A categorical distribution, from logits."""
        return Categorical(outputs, self.start, mask)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """Gumbel noise."""
        return rng.gumbel(size=(num_rows, self.dim)).astype(np.float32)


class SeveralChoices(Actions):
    """Several choices at a time, each with a categorical distribution of its own, independent of the others.

    Their logits stand side by side, and so do the parts of a mask and the one-hots that a network reads.
    """

    kind = ActionKind.multi_discrete

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self.counts = [int(count) for count in space.nvec]
        self.parts = [Choices(spaces.Discrete(count)) for count in self.counts]
        self.dim = self.outputs = sum(self.counts)

    def previous(self, inputs: Inputs) -> Tensor:
        """A one-hot for each choice, and zeros where no action led to the row."""
        numbers = inputs.prev_action.unbind(-1)
        hot = [part.one_hot(number) for part, number in zip(self.parts, numbers, strict=True)]
        return (torch.cat(hot, -1) & ~inputs.episode_start[..., None]).float()

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> IndependentChoices:
        """A categorical distribution for each choice."""
        nothing: list[Tensor | None] = [None] * len(self.parts)
        masks = nothing if mask is None else mask.split(self.counts, -1)
        logits = outputs.split(self.counts, -1)
        return IndependentChoices(
            [
                part.distribution(given, allowed)
                for part, given, allowed in zip(self.parts, logits, masks, strict=True)
            ]
        )

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """Gumbel noise for all choices, side by side."""
        return rng.gumbel(size=(num_rows, self.dim)).astype(np.float32)


def actions_of(space: ActionSpace | spaces.Space[Any]) -> Actions:
    """The actions of a space; one that no policy head can serve is a `ValueError` of one sentence."""
    if isinstance(space, spaces.Discrete):
        return Choices(space)
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        if np.any(space.start != 0):
            raise ValueError(
                f"Several choices are counted from 0, and not as in {space}: shift them in its family."
            )
        return SeveralChoices(space)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            "The agent chooses a vector of real numbers, one of n actions or several of them, "
            f"not {space}: flatten it in a wrapper."
        )
    if not (np.all(space.low == -1) and np.all(space.high == 1)):
        raise ValueError(
            f"The policy's actions lie in [-1, 1], and those of this environment in {space}: "
            "scale them in its family."
        )
    return Continuous(space)

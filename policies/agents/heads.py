"""Heads: from what is remembered and the current row to a distribution over actions or to values."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from policies.agents.actions import Actions, Choices
from policies.agents.base import Distribution, Features
from policies.agents.conditioning import HeadSizes, Join, net_of
from policies.agents.distributions import EpsilonGreedy, Gaussian, Noisy


class PolicyHead(nn.Module):
    """A distribution over actions, of the kind of the action space."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, last_gain: float | None = None) -> None:
        super().__init__()
        self._actions = actions
        self.join = Join(sizes, with_action=False)
        self.net = net_of(sizes, self.join, actions.outputs, last_gain)

    def forward(self, seen: Features) -> Distribution:
        """The policy at rows [..., F]."""
        return self._actions.distribution(self.net(*self.join(seen)), seen.mask)


class GaussianHead(nn.Module):
    """A Gaussian over actions: the mean is a function of the row, the deviation a parameter."""

    def __init__(self, sizes: HeadSizes, deviation: float = 1.0) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.net = net_of(sizes, self.join, sizes.action, last_gain=0.01)
        self.log_std = nn.Parameter(torch.full((sizes.action,), log(deviation)))

    def forward(self, seen: Features) -> Gaussian:
        """The policy at rows [..., F]."""
        return Gaussian(self.net(*self.join(seen)), self.log_std)


class ValueHead(nn.Module):
    """One estimate of V(h, s)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.net = net_of(sizes, self.join, 1, last_gain=1.0)

    def forward(self, seen: Features) -> Tensor:
        """[...] the estimates of rows [..., F]."""
        return self.net(*self.join(seen)).squeeze(-1)


class DeterministicHead(nn.Module):
    """One action in [-1, 1]^A for each row, by tanh; collecting adds noise of this deviation."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, deviation: float = 0.1) -> None:
        super().__init__()
        self._deviation = deviation
        self.join = Join(sizes, with_action=False)
        self.net = net_of(sizes, self.join, actions.dim)

    def forward(self, seen: Features) -> Noisy:
        """The policy at rows [..., F]."""
        return Noisy(torch.tanh(self.net(*self.join(seen))), self._deviation)


class EpsilonGreedyHead(nn.Module):
    """A critic of choices as a policy: the action that its estimates on average value most, but with
    probability `epsilon` any.
    """

    epsilon: Tensor
    """A buffer: 0-d, set by who trains the critic, and saved with the agent."""

    def __init__(self, critic: nn.Module, actions: Choices) -> None:
        super().__init__()
        self._start = actions.start
        self.critic = critic
        self.register_buffer("epsilon", torch.zeros(()))

    def forward(self, seen: Features) -> EpsilonGreedy:
        """The policy at rows [..., F]."""
        return EpsilonGreedy(self.critic(seen).mean(0), self.epsilon, self._start, seen.mask)


class QHead(nn.Module):
    """Several estimates of Q(h, s, a), each by a network of its own.

    They are evaluated one after another: on a CPU a batched product of all takes 5 to 45 % longer than that,
    measured for 2 and 8 of them at 12,800 rows, and differs in its last bits.
    """

    def __init__(self, sizes: HeadSizes, critics: int = 2) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=True)
        self.nets = nn.ModuleList([net_of(sizes, self.join, 1) for _ in range(critics)])

    def forward(self, seen: Features, action: Tensor) -> Tensor:
        """action [..., A] -> [critics, ...]."""
        x = self.join(seen, action)
        return torch.stack([net(*x).squeeze(-1) for net in self.nets])


class QOfChoicesHead(nn.Module):
    """Several estimates of Q(h, s, a) for each of n actions."""

    def __init__(self, sizes: HeadSizes, critics: int = 2) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.nets = nn.ModuleList([net_of(sizes, self.join, sizes.action) for _ in range(critics)])

    def forward(self, seen: Features) -> Tensor:
        """[critics, ..., n]."""
        x = self.join(seen)
        return torch.stack([net(*x) for net in self.nets])

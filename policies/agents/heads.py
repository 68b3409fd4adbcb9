"""Heads: from what is remembered and the current row to a distribution over actions or to values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt

import torch
from torch import Tensor, nn

from policies.agents.actions import Actions, Choices
from policies.agents.base import Activation, Distribution, Seen
from policies.agents.distributions import EpsilonGreedy, Gaussian, Noisy
from policies.memory.dense import dense


class MLP(nn.Module):
    """Linear layers with ReLU or tanh between them.

    `last_gain` starts them orthogonal, the last one scaled by it: the first policy then hardly depends on the row, if that is small.
    Acting calls it for a dozen rows, where the bookkeeping of nested module calls costs as much as the sums: so the layers are applied here.
    """

    def __init__(
        self, in_dim: int, hidden: Sequence[int], out_dim: int, activation: Activation = Activation.relu, last_gain: float | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, outputs) for inputs, outputs in pairwise([in_dim, *hidden, out_dim])])
        self._applied = parameters_of(self.layers)
        self._bend = activation.name
        if last_gain is not None:
            for weight, bias in self._applied:
                nn.init.orthogonal_(weight, last_gain if weight is self._applied[-1][0] else sqrt(2))
                nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_dim] -> [..., out_dim]."""
        *hidden, (weight, bias) = self._applied
        for inner_weight, inner_bias in hidden:
            x = dense(x, inner_weight, inner_bias, self._bend)
        return dense(x, weight, bias)


def parameters_of(layers: Iterable[nn.Module]) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of each linear layer: the parameters themselves, which `to`, `deepcopy` and `load_state_dict` keep up to date."""
    return [(layer.weight, layer.bias) for layer in layers if isinstance(layer, nn.Linear)]


@dataclass(frozen=True)
class HeadSizes:
    """What a head reads and gives."""

    features: int
    """0 beside a Markov branch."""
    obs: int
    action: int
    shortcut: int
    hidden: Sequence[int]
    activation: Activation = Activation.relu


class Join(nn.Module):
    """The features, and the current row past the memory: embedded beside a memory, raw beside a Markov branch."""

    def __init__(self, sizes: HeadSizes, *, with_action: bool) -> None:
        super().__init__()
        self.reads_obs = sizes.features == 0 or sizes.shortcut > 0
        current = sizes.obs * self.reads_obs + sizes.action * with_action
        embeds = sizes.features > 0 and sizes.shortcut > 0
        self.embed = nn.ModuleList([nn.Linear(current, sizes.shortcut)] if embeds else [])
        self._applied = parameters_of(self.embed)
        self.out_dim = sizes.features + (sizes.shortcut if embeds else current)

    def forward(self, seen: Seen, action: Tensor | None = None) -> Tensor:
        """[..., out_dim]."""
        current = seen.obs if self.reads_obs else seen.obs[..., :0]
        if action is not None:
            current = torch.cat([current, action], -1)
        for weight, bias in self._applied:
            current = dense(current, weight, bias, "relu")
        return torch.cat([seen.features, current], -1)


class PolicyHead(nn.Module):
    """A distribution over actions, of the kind of the action space."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, last_gain: float | None = None) -> None:
        super().__init__()
        self._actions = actions
        self.join = Join(sizes, with_action=False)
        self.net = MLP(self.join.out_dim, sizes.hidden, actions.outputs, sizes.activation, last_gain)

    def forward(self, seen: Seen) -> Distribution:
        """[...]."""
        return self._actions.distribution(self.net(self.join(seen)), seen.mask)


class GaussianHead(nn.Module):
    """A Gaussian over actions: the mean is a function of the row, the deviation a parameter."""

    def __init__(self, sizes: HeadSizes, deviation: float = 1.0) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.net = MLP(self.join.out_dim, sizes.hidden, sizes.action, sizes.activation, last_gain=0.01)
        self.log_std = nn.Parameter(torch.full((sizes.action,), log(deviation)))

    def forward(self, seen: Seen) -> Gaussian:
        """[...]."""
        return Gaussian(self.net(self.join(seen)), self.log_std)


class ValueHead(nn.Module):
    """One estimate of V(h, s)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.net = MLP(self.join.out_dim, sizes.hidden, 1, sizes.activation, last_gain=1.0)

    def forward(self, seen: Seen) -> Tensor:
        """[...]."""
        return self.net(self.join(seen)).squeeze(-1)


class DeterministicHead(nn.Module):
    """One action in [-1, 1]^A for each row, by tanh; collecting adds noise of this deviation."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, deviation: float = 0.1) -> None:
        super().__init__()
        self._deviation = deviation
        self.join = Join(sizes, with_action=False)
        self.net = MLP(self.join.out_dim, sizes.hidden, actions.dim, sizes.activation)

    def forward(self, seen: Seen) -> Noisy:
        """[...]."""
        return Noisy(torch.tanh(self.net(self.join(seen))), self._deviation)


class EpsilonGreedyHead(nn.Module):
    """A critic of choices as a policy: the action that its estimates on average value most, but with probability `epsilon` any."""

    epsilon: Tensor
    """A buffer: 0-d, set by who trains the critic, and saved with the agent."""

    def __init__(self, critic: nn.Module, actions: Choices) -> None:
        super().__init__()
        self._start = actions.start
        self.critic = critic
        self.register_buffer("epsilon", torch.zeros(()))

    def forward(self, seen: Seen) -> EpsilonGreedy:
        """[...]."""
        return EpsilonGreedy(self.critic(seen).mean(0), self.epsilon, self._start, seen.mask)


class QHead(nn.Module):
    """Several estimates of Q(h, s, a), each by a network of its own.

    They are evaluated one after another: on a CPU a batched product of all takes 5 to 45 % longer than that, measured for 2 and 8 of them at
    12,800 rows, and differs in its last bits.
    """

    def __init__(self, sizes: HeadSizes, critics: int = 2) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=True)
        self.nets = nn.ModuleList([MLP(self.join.out_dim, sizes.hidden, 1, sizes.activation) for _ in range(critics)])

    def forward(self, seen: Seen, action: Tensor) -> Tensor:
        """action [..., A] -> [critics, ...]."""
        x = self.join(seen, action)
        return torch.stack([net(x).squeeze(-1) for net in self.nets])


class QOfChoicesHead(nn.Module):
    """Several estimates of Q(h, s, a) for each of n actions."""

    def __init__(self, sizes: HeadSizes, critics: int = 2) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.nets = nn.ModuleList([MLP(self.join.out_dim, sizes.hidden, sizes.action, sizes.activation) for _ in range(critics)])

    def forward(self, seen: Seen) -> Tensor:
        """[critics, ..., n]."""
        x = self.join(seen)
        return torch.stack([net(x) for net in self.nets])

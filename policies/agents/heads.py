"""Heads: from the features of a row to a distribution over actions, or to values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor, nn

from policies.agents.actions import Actions, Choices
from policies.agents.base import Conditioning, Distribution, Features
from policies.agents.conditioning import FiLM, Hypernetwork
from policies.agents.distributions import EpsilonGreedy, Gaussian, Noisy
from policies.nn.dense import dense
from policies.nn.mlp import MLP, Activation, linear_parameters


@dataclass(frozen=True)
class HeadSizes:
    """The numbers that a head reads, and the shape of its networks."""

    # 0 beside a Markov branch.
    context: int
    obs: int
    action: int
    shortcut: int
    hidden: Sequence[int]
    activation: Activation = Activation.relu
    # It matters where there is a context.
    conditioning: Conditioning = Conditioning.concatenate
    # Numbers to which a hypernetwork reduces the context; 0 leaves the context as it is.
    hyper: int = 0
    # Hidden layers of an MLP compute many rows in bfloat16.
    bf16: bool = False
    # The shortcut of a critic that reads the action beside the observation; None: that of the others.
    action_shortcut: int | None = None


class Head(nn.Module):
    """The networks of a head, all of one shape and with the same inputs: the context and the current row.

    Beside a memory the current row takes a shortcut past it, through an embedding. Without a memory the row
    is read as it is, and there is no context. An embedding of size 0 leaves the observation out.
    """

    def __init__(
        self,
        sizes: HeadSizes,
        out_dim: int,
        *,
        networks: int = 1,
        with_action: bool = False,
        last_gain: float | None = None,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        # The current row: the observation, and for some critics the action.
        has_context = sizes.context > 0
        self._reads_obs = not has_context or sizes.shortcut > 0
        row = sizes.obs * self._reads_obs + sizes.action * with_action
        self.embed = nn.ModuleList()
        if has_context and sizes.shortcut > 0:
            width = sizes.shortcut
            if with_action and sizes.action_shortcut is not None:
                width = sizes.action_shortcut
            self.embed.append(nn.Linear(row, width))
            row = width
        self._embedding = linear_parameters(self.embed)

        # Two separate inputs for a network that the context changes, or else one: (context, row).
        self._separate = has_context and sizes.conditioning is not Conditioning.concatenate
        in_dim = row if self._separate else row + sizes.context

        def network() -> nn.Module:
            mlp = MLP(
                in_dim,
                sizes.hidden,
                out_dim,
                sizes.activation,
                last_gain,
                bf16=sizes.bf16,
                layer_norm=layer_norm,
            )
            if not self._separate:
                return mlp
            if sizes.conditioning is Conditioning.film:
                return FiLM(mlp, sizes.context)
            return Hypernetwork(mlp, sizes.context, sizes.hyper)

        self.nets = nn.ModuleList([network() for _ in range(networks)])

    def outputs(self, features: Features, action: Tensor | None = None) -> list[Tensor]:
        """[..., out_dim] of each network, for rows [..., F]; critics of vectors read the action too."""
        row = features.obs if self._reads_obs else features.obs[..., :0]
        if action is not None:
            row = torch.cat([row, action], -1)
        for weight, bias in self._embedding:
            row = dense(row, weight, bias, "relu")
        if self._separate:
            return [net(row, features.context) for net in self.nets]
        # The inputs are put together once for all networks of an ensemble.
        inputs = torch.cat([features.context, row], -1)
        return [net(inputs) for net in self.nets]


class PolicyHead(Head):
    """A distribution over actions, of the kind of the action space."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, last_gain: float | None = None) -> None:
        super().__init__(sizes, actions.outputs, last_gain=last_gain)
        self._actions = actions

    def forward(self, features: Features) -> Distribution:
        """The policy at rows [..., F]."""
        (outputs,) = self.outputs(features)
        return self._actions.distribution(outputs, features.mask)


class GaussianHead(Head):
    """A Gaussian over actions: the mean is a function of the row, the deviation is a parameter."""

    def __init__(self, sizes: HeadSizes, deviation: float = 1.0) -> None:
        # A last layer of gain 0.01 makes all first means nearly 0, as in CleanRL's PPO.
        super().__init__(sizes, sizes.action, last_gain=0.01)
        self.log_std = nn.Parameter(torch.full((sizes.action,), log(deviation)))

    def forward(self, features: Features) -> Gaussian:
        """The policy at rows [..., F]."""
        (mean,) = self.outputs(features)
        return Gaussian(mean, self.log_std)

    @torch.no_grad()
    def keep_above(self, deviation: float) -> None:
        """Raise the deviation to this one where it is lower."""
        # The parameter itself is raised: were it clamped where it is read, it would get no gradient below the
        # floor, and never come back.
        if deviation > 0:
            self.log_std.clamp_(min=log(deviation))


class ValueHead(Head):
    """One estimate of V(h, s)."""

    def __init__(self, sizes: HeadSizes) -> None:
        # An orthogonal start with gain 1 for the values, as in CleanRL's PPO.
        super().__init__(sizes, 1, last_gain=1.0)

    def forward(self, features: Features) -> Tensor:
        """[...] the estimates of rows [..., F]."""
        (value,) = self.outputs(features)
        return value.squeeze(-1)


class DeterministicHead(Head):
    """One action in [-1, 1]^A for each row, by tanh; collecting adds noise of this deviation."""

    def __init__(self, sizes: HeadSizes, actions: Actions, *, deviation: float = 0.1) -> None:
        super().__init__(sizes, actions.dim)
        self._deviation = deviation

    def forward(self, features: Features) -> Noisy:
        """The policy at rows [..., F]."""
        (outputs,) = self.outputs(features)
        return Noisy(torch.tanh(outputs), self._deviation)


class EpsilonGreedyHead(nn.Module):
    """A critic of choices as a policy: the action of the highest mean estimate, but any with `epsilon`."""

    # The probability of a uniform action: a 0-d buffer that the algorithm sets and the agent saves.
    epsilon: Tensor

    def __init__(self, critic: nn.Module, actions: Choices) -> None:
        super().__init__()
        self._start = actions.start
        self.critic = critic
        self.register_buffer("epsilon", torch.zeros(()))

    def forward(self, features: Features) -> EpsilonGreedy:
        """The policy at rows [..., F]."""
        # The critics of an ensemble vote by their mean.
        return EpsilonGreedy(self.critic(features).mean(0), self.epsilon, self._start, features.mask)


class QHead(Head):
    """Several estimates of Q(h, s, a), each by a network of its own.

    They are evaluated one after another: on a CPU a batched product of all takes 5 to 45 % longer than that,
    measured for 2 and 8 of them at 12,800 rows, and differs in its last bits.
    """

    def __init__(self, sizes: HeadSizes, critics: int = 2, *, layer_norm: bool = False) -> None:
        super().__init__(sizes, 1, networks=critics, with_action=True, layer_norm=layer_norm)

    def forward(self, features: Features, action: Tensor) -> Tensor:
        """action [..., A] -> [critics, ...]."""
        return torch.stack([q.squeeze(-1) for q in self.outputs(features, action)])


class QOfChoicesHead(Head):
    """Several estimates of Q(h, s, a) for each of n actions."""

    def __init__(self, sizes: HeadSizes, critics: int = 2, *, layer_norm: bool = False) -> None:
        super().__init__(sizes, sizes.action, networks=critics, layer_norm=layer_norm)

    def forward(self, features: Features) -> Tensor:
        """[critics, ..., n]."""
        return torch.stack(self.outputs(features))

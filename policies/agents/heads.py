"""Heads: from what is remembered and the current row to a distribution over actions or to values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

LOG_STD_RANGE = (-20.0, 2.0)
LARGEST_ACTION = 1.0 - 1e-6
"""atanh(1) is infinite, and float32 rounds tanh(9) to 1."""


class MLP(nn.Module):
    """Linear layers with ReLU between them.

    Acting calls it for a dozen rows, where the bookkeeping of nested module calls costs as much as the sums: so the layers are applied here.
    """

    def __init__(self, in_dim: int, hidden: Sequence[int], out_dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, outputs) for inputs, outputs in pairwise([in_dim, *hidden, out_dim])])
        self._applied = parameters_of(self.layers)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_dim] -> [..., out_dim]."""
        *hidden, (weight, bias) = self._applied
        for inner_weight, inner_bias in hidden:
            x = linear(x, inner_weight, inner_bias).relu_()
        return linear(x, weight, bias)


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


@dataclass
class TanhGaussian:
    """a = tanh(u), u ~ N(mean, std): a density on (-1, 1)^A."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the action that standard normal noise picks."""
        return torch.tanh(self.mean + self.log_std.exp() * noise)

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The same action, and its log-probability from u itself, which is exact where tanh has rounded to 1."""
        u = self.mean + self.log_std.exp() * noise
        return torch.tanh(u), self._log_prob(u, noise)

    def mode(self) -> Tensor:
        """[..., A] tanh of the mean."""
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-density of an action."""
        u = torch.atanh(action.clamp(-LARGEST_ACTION, LARGEST_ACTION))
        return self._log_prob(u, (u - self.mean) * torch.exp(-self.log_std))

    def _log_prob(self, u: Tensor, noise: Tensor) -> Tensor:
        # log pi(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2),  and  log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u))  without cancellation
        log_normal = -0.5 * noise.square() - self.log_std - 0.5 * math.log(2.0 * math.pi)
        return (log_normal - 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))).sum(-1)


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

    def forward(self, features: Tensor, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """[..., out_dim]."""
        current = obs if self.reads_obs else obs[..., :0]
        if action is not None:
            current = torch.cat([current, action], -1)
        for weight, bias in self._applied:
            current = linear(current, weight, bias).relu_()
        return torch.cat([features, current], -1)


class PolicyHead(nn.Module):
    """A tanh-Gaussian from the features and the current observation."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=False)
        self.net = MLP(self.join.out_dim, sizes.hidden, 2 * sizes.action)

    def forward(self, features: Tensor, obs: Tensor) -> TanhGaussian:
        """features [..., F], obs [..., D]."""
        mean, log_std = self.net(self.join(features, obs)).chunk(2, -1)
        return TanhGaussian(mean, log_std.clamp(*LOG_STD_RANGE))


class TwinQHead(nn.Module):
    """Two estimates of Q(h, s, a), of which the smaller is believed."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.join = Join(sizes, with_action=True)
        self.nets = nn.ModuleList([MLP(self.join.out_dim, sizes.hidden, 1) for _ in range(2)])

    def forward(self, features: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        """features [..., F], obs [..., D], action [..., A] -> [2, ...]."""
        x = self.join(features, obs, action)
        return torch.stack([net(x).squeeze(-1) for net in self.nets])

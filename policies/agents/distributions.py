"""Distributions over actions: what a policy head gives for every row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import softplus

# atanh(1) is infinite, and float32 rounds tanh(9) to 1.
LARGEST_ACTION = 1.0 - 1e-6
# The logit of an action that is not allowed: its probability is exactly 0, and p log p is 0, not NaN.
FORBIDDEN = -1e9


@dataclass
class TanhGaussian:
    """a = tanh(u), u ~ N(mean, std): a density on (-1, 1)^A."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the action that standard normal noise picks."""
        return torch.tanh(self.mean + self.log_std.exp() * noise)

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The action and its log-probability, from u itself: exact where tanh has rounded to 1."""
        u = self.mean + self.log_std.exp() * noise
        return torch.tanh(u), self._log_prob(u, noise)

    def mode(self) -> Tensor:
        """[..., A] tanh of the mean."""
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-density of an action."""
        # Invert tanh; an action that was rounded to 1 would be at infinity.
        u = torch.atanh(action.clamp(-LARGEST_ACTION, LARGEST_ACTION))
        return self._log_prob(u, (u - self.mean) * torch.exp(-self.log_std))

    def _log_prob(self, u: Tensor, noise: Tensor) -> Tensor:
        # log pi(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2), by the change of variables a = tanh(u).
        # Without cancellation: log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).
        log_normal = -0.5 * noise.square() - self.log_std - 0.5 * math.log(2.0 * math.pi)
        return (log_normal - 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))).sum(-1)


@dataclass
class Noisy:
    """One action in [-1, 1]^A, to which normal noise is added; what leaves the bounds is clipped."""

    action: Tensor
    deviation: float

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the action with standard normal noise times the deviation."""
        return (self.action + self.deviation * noise).clamp(-1.0, 1.0)

    def mode(self) -> Tensor:
        """[..., A] the action itself."""
        return self.action

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-density of an action, as if nothing were clipped."""
        # log N(a; action, deviation) of A independent numbers
        noise = (action - self.action) / self.deviation
        return (-0.5 * noise.square() - math.log(self.deviation) - 0.5 * math.log(2.0 * math.pi)).sum(-1)


@dataclass
class Gaussian:
    """a ~ N(mean, std) in all of R^A, with independent numbers; environments clip it to their bounds."""

    mean: Tensor
    # [..., A], or [A] where it is the same at every row.
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the action that standard normal noise picks."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def mode(self) -> Tensor:
        """[..., A] the mean."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-density of an action."""
        # log N(a; mean, std) = -1/2 ((a - mean) / std)^2 - log std - 1/2 log 2 pi, summed over numbers
        noise = (action - self.mean) * torch.exp(-self.log_std)
        return -0.5 * noise.square().sum(-1) - (self.log_std + 0.5 * math.log(2.0 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """[...] nats; one number where the deviation is the same at every row."""
        # 1/2 log(2 pi e std^2), summed over numbers
        return (self.log_std + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1)


class Categorical:
    """One of n actions, counted from `start`; those that a mask forbids have probability 0."""

    def __init__(self, logits: Tensor, start: int = 0, mask: Tensor | None = None) -> None:
        self._start = start
        # [..., n] bool; None where all actions are allowed.
        self.allowed: Tensor | None = None
        if mask is not None:
            # A mask that allows nothing, as on the last row of an episode, forbids nothing.
            given = mask != 0
            self.allowed = given | ~given.any(-1, keepdim=True)
            logits = logits.masked_fill(~self.allowed, FORBIDDEN)
        self.logits = logits

    @cached_property
    def log_probs(self) -> Tensor:
        """[..., n] the log-probability of each action; about `FORBIDDEN` where it is not allowed."""
        return torch.log_softmax(self.logits, -1)

    def sample(self, noise: Tensor) -> Tensor:
        """[...] the action that Gumbel noise [..., n] picks."""
        # The Gumbel-max trick: the largest of logit plus noise has the probabilities of the softmax.
        return (self.logits + noise).argmax(-1) + self._start

    def mode(self) -> Tensor:
        """[...] the likeliest action."""
        return self.logits.argmax(-1) + self._start

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-probability of an action; padding, which need not hold one, gets some number."""
        index = (action - self._start).clamp(0, self.logits.shape[-1] - 1)
        return self.log_probs.gather(-1, index[..., None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """[...] nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def highest_entropy(self) -> Tensor:
        """[...] the entropy, in nats, of the uniform distribution over the allowed actions."""
        if self.allowed is None:
            return torch.full_like(self.logits[..., 0], math.log(self.logits.shape[-1]))
        return self.allowed.sum(-1).to(self.logits.dtype).log()


class IndependentChoices:
    """Several choices [..., A] that do not depend on one another; parts of unequal size side by side."""

    def __init__(self, parts: list[Categorical]) -> None:
        self.parts = parts
        self._counts = [part.logits.shape[-1] for part in parts]

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the choices that Gumbel noise [..., sum of n] picks."""
        noises = noise.split(self._counts, -1)
        return torch.stack([part.sample(one) for part, one in zip(self.parts, noises, strict=True)], -1)

    def mode(self) -> Tensor:
        """[..., A] the likeliest of each choice."""
        return torch.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] the log-probability of all choices [..., A] together: the sum over them."""
        choices = zip(self.parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(choice) for part, choice in choices]).sum(0)

    def entropy(self) -> Tensor:
        """[...] nats: the sum over the choices, as they are independent."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class EpsilonGreedy(Categorical):
    """The action with the highest value, but with probability epsilon any allowed one, uniformly."""

    def __init__(self, values: Tensor, epsilon: Tensor, start: int = 0, mask: Tensor | None = None) -> None:
        super().__init__(values, start, mask)
        allowed = torch.ones_like(self.logits)
        if self.allowed is not None:
            allowed = self.allowed.to(values.dtype)
        # p = epsilon / (number of allowed actions) + (1 - epsilon) at the best one
        self._best = self.logits.argmax(-1)
        best = torch.zeros_like(self.logits).scatter_(-1, self._best[..., None], 1.0)
        probs = epsilon * allowed / allowed.sum(-1, keepdim=True) + (1.0 - epsilon) * best
        self.logits = probs.log().clamp(min=FORBIDDEN)

    def mode(self) -> Tensor:
        """[...] the action with the highest value, though at epsilon 1 it is no likelier than others."""
        return self._best + self._start

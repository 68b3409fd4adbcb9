"""What soft actor-critics share, whatever their actions: the value of a row counts the policy's entropy, at a
temperature that may tune itself.

    y        = r' + gamma c V'(h', s'),  V = E[Q(h, s, a) - alpha log pi(a | h, s)] under the policy as it is, Q the smallest of the target critics
    J_Q      = E[(Q_i(h, s, a) - y)^2]
    J_pi     = E[alpha log pi(a | h, s) - Q(h, s, a)],  Q the smallest of the critics (or the mean, where not all count in targets)
    J(alpha) = E[-alpha (log pi(a | h, s) + H)],  H the entropy aimed at

After Haarnoja et al. 2018, arXiv:1812.05905.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.agents.agent import Agent
from policies.algorithms.off_policy import ActorCriticConfig, HeadOnRows, OffPolicy
from utils.options import OnlyIf, option

TUNES_TEMPERATURE = OnlyIf(
    lambda run, needs: run.algorithm.temperature is None,
    "algorithm.temperature is fixed, and only one that is tuned has a target",
)


@dataclass
class SoftActorCriticConfig(ActorCriticConfig):
    """Options of all soft actor-critics."""

    temperature: float | None = option(None, "alpha, where it is to stay as it is; null tunes it", above=0)
    init_temperature: float = option(
        0.1, "alpha at the start, where it is tuned", above=0, only_if=TUNES_TEMPERATURE
    )


class SoftActorCritic(OffPolicy):
    """Off-policy, maximum entropy. Owns the temperature too.

    A subclass says what the value of a row is, and which of its critic's numbers belong to an action.
    """

    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        self.tunes = config.temperature is None
        start = config.init_temperature if config.temperature is None else config.temperature
        self.log_temperature = torch.tensor(math.log(start), device=self.device, requires_grad=self.tunes)
        if self.tunes:
            self.add_optimizer("temperature", [self.log_temperature])

    @abstractmethod
    def soft_value(
        self, critic: HeadOnRows, actor: HeadOnRows, temperature: Tensor, believed: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(V = E[Q - alpha log pi], E[log pi]), [M] each, under the actor's policy; `believed` makes one Q of
        all estimates.
        """

    @abstractmethod
    def target_entropy(self, actor: HeadOnRows) -> Tensor | float:
        """The entropy (nats) that the temperature aims at; a number, or [M]."""

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """The soft value, by the smallest of the critics that count."""
        return self.soft_value(critic, actor, self.log_temperature.exp(), self.min_q)[0]

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The actor's and the temperature's."""
        temperature = self.log_temperature.exp()
        believed = self.min_q if self.all_in_target else _mean
        value, log_prob = self.soft_value(critic, actor, temperature.detach(), believed)
        losses = {"actor": -value.mean()}
        if self.tunes:
            losses["temperature"] = -(temperature * (log_prob.detach() + self.target_entropy(actor))).mean()
        return losses, {"entropy": -log_prob.mean(), "temperature": temperature}

    def state_dict(self) -> dict[str, Any]:
        """With the temperature."""
        return {**super().state_dict(), "log_temperature": self.log_temperature.detach()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        super().load_state_dict(state)
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])


def _mean(q: Tensor) -> Tensor:
    return q.mean(0)

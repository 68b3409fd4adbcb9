"""What soft actor-critics share: a row's value counts the policy's entropy, weighed by a temperature.

    V        = E[Q(h, s, a) - alpha log pi(a | h, s)],  a ~ pi
    y        = r' + gamma c V'(h', s')
    J_Q      = E[(Q_i(h, s, a) - y)^2]
    J_pi     = -E[V(h, s)]
    J(alpha) = E[-alpha (log pi(a | h, s) + H)],  H is the target entropy

In V' of targets, pi is the policy as it is, and Q the smallest of the target critics that are drawn. In J_pi,
Q is the smallest of the critics, or their mean where targets draw some of them (REDQ).

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
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.off_policy_config import ActorCriticConfig
from policies.algorithms.transitions import HeadOnRows
from utils.options import OnlyIf, option

TUNES_TEMPERATURE = OnlyIf(
    lambda run, needs: run.algorithm.temperature is None,
    "algorithm.temperature is fixed, and only one that is tuned has a target",
)


@dataclass
class SoftActorCriticConfig(ActorCriticConfig):
    """Options of all soft actor-critics."""

    temperature: float | None = option(None, "alpha, if it is to stay constant; null tunes it", above=0)
    init_temperature: float = option(
        0.1, "alpha at the start, where it is tuned", above=0, only_if=TUNES_TEMPERATURE
    )


class SoftActorCritic(OffPolicy):
    """Off-policy, maximum entropy. Owns the temperature too.

    A subclass defines the value of a row, and which of its critic's outputs belong to an action.
    """

    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        self.tunes = config.temperature is None
        initial = config.init_temperature if self.tunes else config.temperature
        # The logarithm is what is learned: alpha stays positive, and a step changes it by a factor.
        self.log_temperature = torch.tensor(math.log(initial), device=self.device, requires_grad=self.tunes)
        if self.tunes:
            self.add_optimizer("temperature", [self.log_temperature])

    @abstractmethod
    def soft_value(
        self, critic: HeadOnRows, actor: HeadOnRows, temperature: Tensor, reduce: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(E[Q - alpha log pi], E[log pi]), [M] each, under the policy; `reduce` makes one Q of all N."""

    @abstractmethod
    def target_entropy(self, actor: HeadOnRows) -> Tensor | float:
        """The entropy (nats) that the temperature aims at: a number, or [M] of them."""

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """[M] V', the soft value, by the smallest of the critics in the target."""
        # No gradient is kept (`targets` is without one), so alpha and pi enter as they are.
        return self.soft_value(critic, actor, self.log_temperature.exp(), self.min_q)[0]

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The losses of the actor and of a tuned temperature."""
        temperature = self.log_temperature.exp()

        # The policy: J_pi = -E[V]. Where a target draws some of the critics, the policy climbs the mean of
        # all, as in REDQ: the smallest of many would be too low.
        reduce = self.min_q if self.all_in_target else _mean_q
        # Alpha is a constant here: the policy must not make its own reward.
        value, log_prob = self.soft_value(critic, actor, temperature.detach(), reduce)
        losses = {"actor": -value.mean()}

        # The temperature rises while the policy's entropy, -E[log pi], is below its target, and falls above
        # it. The gradient is by log alpha, so it grows with alpha (SB3 leaves that factor out).
        if self.tunes:
            distance = log_prob.detach() + self.target_entropy(actor)
            losses["temperature"] = -(temperature * distance).mean()
        return losses, {"entropy": -log_prob.mean(), "temperature": temperature}

    def state_dict(self) -> dict[str, Any]:
        """What all off-policy algorithms save, and the temperature."""
        # The temperature's optimiser is among the base's; its one parameter is no module's.
        return {**super().state_dict(), "log_temperature": self.log_temperature.detach()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        super().load_state_dict(state)
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])


def _mean_q(q: Tensor) -> Tensor:
    return q.mean(0)

"""SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv:1812.05905), on rows that
may be remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from policies.agents.actions import ActionKind
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec
from policies.agents.heads import QHead
from policies.algorithms.off_policy import HeadOnRows
from policies.algorithms.soft_actor_critic import TUNES_TEMPERATURE, SoftActorCritic, SoftActorCriticConfig
from utils.options import option


@dataclass
class SACConfig(SoftActorCriticConfig):
    """Options of SAC."""

    target_entropy: float | None = option(
        None,
        "entropy (nats) that the temperature aims at; null is minus the number of action dimensions",
        only_if=TUNES_TEMPERATURE,
    )


class SAC(SoftActorCritic):
    """Continuous actions: one is drawn by the reparametrised policy at every row, a = f(noise; h, s), and
    gradients flow through it.
    """

    Config = SACConfig
    serves = (ActionKind.continuous,)

    def __init__(self, config: SACConfig, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        self._target_entropy = (
            -float(agent.actions.dim) if config.target_entropy is None else config.target_entropy
        )

    @classmethod
    def make_agent(cls, config: SACConfig, spec: AgentSpec) -> Agent:
        """An agent whose critics read the action."""
        cls.check(config, spec)
        return Agent(spec, partial(QHead, critics=config.critics))

    def soft_value(
        self, critic: HeadOnRows, actor: HeadOnRows, temperature: Tensor, believed: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """V estimated from one sampled action at every row."""
        noise = torch.randn(
            len(actor.seen.obs), self.agent.actions.dim, generator=self.generator, device=self.device
        )
        action, log_prob = actor().sample_with_log_prob(noise)
        return believed(critic(action)) - temperature * log_prob, log_prob

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """The action is an input of the critic."""
        return critic(action)

    def target_entropy(self, actor: HeadOnRows) -> float:
        """The same at every row."""
        return self._target_entropy

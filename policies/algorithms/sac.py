"""SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv:1812.05905).

With a memory it reads whole trials or windows of them (recurrent model-free RL, Ni et al. 2022,
arXiv:2110.05038).
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
from policies.algorithms.soft_actor_critic import TUNES_TEMPERATURE, SoftActorCritic, SoftActorCriticConfig
from policies.algorithms.transitions import HeadOnRows
from utils.options import option


@dataclass
class SACConfig(SoftActorCriticConfig):
    """Options of SAC."""

    target_entropy: float | None = option(
        None,
        "entropy (nats) that tuning aims at; null: minus the number of action dimensions",
        only_if=TUNES_TEMPERATURE,
    )


class SAC(SoftActorCritic):
    """Continuous actions: the policy is a Gaussian that tanh squashes into the bounds."""

    Config = SACConfig
    serves = (ActionKind.continuous,)

    def __init__(self, config: SACConfig, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        # The paper's heuristic, H = -dim(A). The uniform policy on [-1, 1] has log 2 per dimension.
        self._target_entropy = -float(agent.actions.dim)
        if config.target_entropy is not None:
            self._target_entropy = config.target_entropy

    @classmethod
    def make_agent(cls, config: SACConfig, spec: AgentSpec) -> Agent:
        """An agent whose critics read the action."""
        cls.check(config, spec)
        return Agent(spec, partial(QHead, **config.critic_options))

    def soft_value(
        self, critic: HeadOnRows, actor: HeadOnRows, temperature: Tensor, reduce: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """V = Q(h, s, a) - alpha log pi(a | h, s), estimated from one sampled action at every row."""
        # The reparametrisation trick: a = tanh(mean + std * noise), so the gradient of Q flows
        # through the action into the policy. The noise is drawn from the algorithm's own stream.
        noise = torch.randn(
            len(actor.features.obs), self.agent.actions.dim, generator=self.generator, device=self.device
        )
        # log pi counts the squashing: log N(u) - sum log(1 - tanh(u)^2), from u itself.
        action, log_prob = actor().sample_with_log_prob(noise)
        # One sample is an unbiased estimate of the expectation, given the critics.
        return reduce(critic(action)) - temperature * log_prob, log_prob

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] Q of the actions that were taken: the action is an input of the critic."""
        return critic(action)

    def target_entropy(self, actor: HeadOnRows) -> float:
        """One number for all rows."""
        return self._target_entropy

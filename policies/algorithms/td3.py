"""TD3: twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), on rows that may
be remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from policies.agents.actions import ActionKind
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec
from policies.agents.heads import DeterministicHead, QHead
from policies.algorithms.off_policy import ActorCriticConfig, HeadOnRows, OffPolicy
from utils.options import option


@dataclass
class TD3Config(ActorCriticConfig):
    """Options of TD3."""

    policy_delay: int = option(2, "the policy learns in one of so many updates", low=1)
    exploration_noise: float = option(
        0.1, "deviation of the normal noise that is added to actions while collecting", above=0
    )
    target_noise: float = option(0.2, "deviation of the normal noise on the target policy's actions", low=0)
    target_noise_clip: float = option(0.5, "the most that this noise may be", low=0)


class TD3(OffPolicy):
    """Continuous actions, a = pi(h, s) by tanh. Collecting takes clip(a + exploration noise), evaluation a
    itself.

        V'(h', s') = min_i Q'_i(h', s', clip(pi'(h', s') + clip(target_noise e, -c, c))),  e ~ N(0, 1)
        J_Q        = E[(Q_i(h, s, a) - r' - gamma c V'(h', s'))^2],  i = 1..N
        J_pi       = -E[Q_1(h, s, pi(h, s))],  in one update of `policy_delay`, and then pi' and Q' follow by tau

    The noise on the target policy's action makes the target smooth in it, so that no narrow peak of the
    critic is exploited. Where not all critics count in targets, the policy climbs their mean.
    """

    Config = TD3Config
    config: TD3Config
    serves = (ActionKind.continuous,)
    target_policy = True

    @classmethod
    def make_agent(cls, config: TD3Config, spec: AgentSpec) -> Agent:
        """An agent with one action for each row."""
        cls.check(config, spec)
        return Agent(
            spec,
            partial(QHead, critics=config.critics),
            partial(DeterministicHead, deviation=config.exploration_noise),
        )

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """The smallest target critic at the target policy's action plus clipped noise."""
        action = actor().mode()
        noise = (
            torch.randn(action.shape, generator=self.generator, device=self.device) * self.config.target_noise
        )
        limit = self.config.target_noise_clip
        return self.min_q(critic((action + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)))

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """The action is an input of the critic."""
        return critic(action)

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The actor climbs the first critic (where the mean is taken of all critics: that mean)."""
        q: Tensor = critic(actor().mode())
        return {"actor": -(q[0] if self.all_in_target else q).mean()}, {}

"""TD3: twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

With a memory it reads whole trials or windows of them (recurrent model-free RL, Ni et al. 2022,
arXiv:2110.05038).
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
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.off_policy_config import ActorCriticConfig
from policies.algorithms.transitions import HeadOnRows
from utils.options import option


@dataclass
class TD3Config(ActorCriticConfig):
    """Options of TD3."""

    policy_delay: int = option(2, "the policy learns in one of so many updates", low=1)
    exploration_noise: float = option(
        0.1, "standard deviation of the noise on actions while collecting", above=0
    )
    target_noise: float = option(0.2, "standard deviation of the noise on the target policy's actions", low=0)
    target_noise_clip: float = option(0.5, "the most that this noise may be", low=0)


class TD3(OffPolicy):
    """Continuous actions, a = pi(h, s) by tanh.

        V'(h', s') = min_i Q'_i(h', s', clip(pi'(h', s') + clip(target_noise e, -c, c))),  e ~ N(0, 1)
        J_Q        = E[(Q_i(h, s, a) - r' - gamma c V'(h', s'))^2],  i = 1..N
        J_pi       = -E[Q_1(h, s, pi(h, s))]

    The policy learns in one of `policy_delay` updates, and then pi' and Q' follow by tau. Collecting takes
    clip(a + exploration noise), evaluation a itself.
    """

    Config = TD3Config
    config: TD3Config
    serves = (ActionKind.continuous,)
    target_policy = True

    @classmethod
    def make_agent(cls, config: TD3Config, spec: AgentSpec) -> Agent:
        """An agent with one action for each row."""
        cls.check(config, spec)
        # Noise while collecting is part of the actor's head: acting elsewhere needs nothing but the agent.
        return Agent(
            spec,
            partial(QHead, **config.critic_options),
            partial(DeterministicHead, deviation=config.exploration_noise),
        )

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """[M] V', the smallest target critic at the target policy's action plus clipped noise."""
        # The target policy's action, without the noise of collecting.
        action = actor().mode()

        # Target policy smoothing (section 5.3 of the paper): noise on the action makes the target smooth in
        # it, so that the policy exploits no narrow peak of the critic.
        scale, limit = self.config.target_noise, self.config.target_noise_clip
        noise = torch.randn(action.shape, generator=self.generator, device=self.device) * scale
        smoothed = (action + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)

        # Clipped double Q-learning (section 4.2): the smaller estimate, against overestimation.
        return self.min_q(critic(smoothed))

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] Q of the actions that were taken: the action is an input of the critic."""
        return critic(action)

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The actor's loss: minus Q of its own action."""
        # The deterministic policy gradient: Q rises along the action, and the action along the policy.
        q: Tensor = critic(actor().mode())

        # The paper climbs Q_1 alone; where a target draws some of many critics, REDQ climbs the mean of all.
        if self.all_in_target:
            q = q[0]
        return {"actor": -q.mean()}, {}

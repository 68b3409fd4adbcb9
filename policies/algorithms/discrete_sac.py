"""DiscreteSAC: soft actor-critic with an output per action (after Christodoulou 2019, arXiv:1910.07207)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from policies.agents.actions import ActionKind, Choices
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec
from policies.agents.heads import QOfChoicesHead
from policies.algorithms.soft_actor_critic import TUNES_TEMPERATURE, SoftActorCritic, SoftActorCriticConfig
from policies.algorithms.transitions import HeadOnRows
from utils.options import option


@dataclass
class DiscreteSACConfig(SoftActorCriticConfig):
    """Options of DiscreteSAC."""

    target_entropy_ratio: float = option(
        0.3,
        "the entropy that tuning aims at, as a part of the highest possible",
        above=0,
        high=1,
        only_if=TUNES_TEMPERATURE,
    )


class DiscreteSAC(SoftActorCritic):
    """Actions 1..n. With n probabilities and n values at every row, all expectations are exact sums.

        V(h, s)  = sum_a pi(a | h, s) (min_i Q_i(h, s, a) - alpha log pi(a | h, s))
        J_Q      = E[(Q_i(h, s, a) - r' - gamma c V'(h', s'))^2],  i = 1..N
        J_pi     = -E[V(h, s)], through pi only
        J(alpha) = E[alpha (entropy of pi(. | h, s) - ratio * log n)]

    An action that `action_mask` forbids has probability 0: it is in no sum, never taken, and n counts those
    that are allowed at the row.

    A tuned temperature finds the scale of the rewards by itself, where a fixed one that suits rewards of 1
    per step drowns a single one at the end of a trial. But it keeps the policy's entropy up everywhere, also
    where the best action is long known, and rises with the returns until it does; for delayed rewards it is
    published to end with no gradient left. Then set a lower ratio, or fix `temperature`.
    """

    Config = DiscreteSACConfig
    config: DiscreteSACConfig
    serves = (ActionKind.discrete,)

    def __init__(self, config: DiscreteSACConfig, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        assert isinstance(agent.actions, Choices)
        self._choices = agent.actions

    @classmethod
    def make_agent(cls, config: DiscreteSACConfig, spec: AgentSpec) -> Agent:
        """An agent whose critics estimate Q of every action."""
        cls.check(config, spec)
        return Agent(spec, partial(QOfChoicesHead, **config.critic_options))

    def soft_value(
        self, critic: HeadOnRows, actor: HeadOnRows, temperature: Tensor, reduce: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """V = sum_a pi(a) (Q(a) - alpha log pi(a)), exactly: nothing is sampled."""
        # The policy at every row: [M, n] log-probabilities.
        log_probs = actor().log_probs
        probs = log_probs.exp()
        # E[log pi], minus the entropy. Forbidden actions have a large finite logit: 0 times -inf would be
        # NaN.
        log_prob = (probs * log_probs).sum(-1)
        # The critics are reduced action by action, before the expectation.
        q = reduce(critic())
        return (probs * q).sum(-1) - temperature * log_prob, log_prob

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] Q of the actions that were taken: one of the critic's n outputs."""
        return self._choices.taken(critic(), action)

    def target_entropy(self, actor: HeadOnRows) -> Tensor:
        """[M] a part of the highest entropy that the mask allows at each row."""
        # Equal logits give the uniform policy over the allowed actions, whose entropy is log n.
        # The paper takes 0.98 log n; a ratio that high keeps the policy nearly uniform.
        equal_logits = torch.zeros(len(actor.features.obs), self._choices.outputs, device=self.device)
        uniform = self._choices.distribution(equal_logits, actor.features.mask)
        return self.config.target_entropy_ratio * uniform.highest_entropy()

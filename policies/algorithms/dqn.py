"""DQN: Q-learning with a target network (Mnih et al. 2015), its choice and its value by two networks (double
DQN: van Hasselt et al. 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from buffers.base import Batch
from policies.agents.actions import ActionKind, Choices
from policies.agents.agent import Agent, Network
from policies.agents.base import AgentConfig, AgentSpec, Arch, Encoders
from policies.agents.heads import EpsilonGreedyHead, QOfChoicesHead
from policies.algorithms.off_policy import HeadOnRows, OffPolicy, OffPolicyConfig
from utils.options import option


@dataclass
class DQNConfig(OffPolicyConfig):
    """Options of DQN."""

    critics: int = option(
        1, "estimates of Q, each by a head of its own; actions are chosen by their mean", low=1
    )
    critics_in_target: int = option(
        1, "the smallest of so many of them, drawn in each update, is believed in targets", low=1
    )
    epsilon_start: float = option(1.0, "the part of random actions at the first update", low=0, high=1)
    epsilon_end: float = option(0.05, "the part of random actions that is left in the end", low=0, high=1)
    epsilon_updates: int = option(2_000, "updates over which epsilon goes from the one to the other", low=1)


class GreedyAgent(Agent):
    """Acts by its critic: the actor is another head on what the critic sees and remembers."""

    def __init__(self, spec: AgentSpec, critics: int) -> None:
        super().__init__(spec, partial(QOfChoicesHead, critics=critics))
        assert isinstance(self.actions, Choices)
        self.head = EpsilonGreedyHead(self.critic.head, self.actions).to(spec.device)
        self.actor = Network(self.critic.encoder, self.critic.branch, self.head, self.critic.inference)
        self.shares = True


class DQN(OffPolicy):
    """Actions 1..n; the policy is epsilon-greedy, and has no parameters of its own.

        a* = argmax_a Q(h', s', a)
        y  = r' + gamma c Q'(h', s', a*)       Q' follows Q by tau in every update, rather than all at once after many
        J  = E[(Q(h, s, a) - y)^2]             not clipped to a slope of 1, which would count in units of the reward; see max_grad_norm

    An action that `action_mask` forbids is neither a* nor ever taken. Epsilon falls with the updates, in a
    straight line; evaluation is greedy.
    """

    Config = DQNConfig
    config: DQNConfig
    serves = (ActionKind.discrete,)

    def __init__(self, config: DQNConfig, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        assert isinstance(agent, GreedyAgent) and isinstance(agent.actions, Choices)
        self._choices, self._policy = agent.actions, agent.head
        self._policy.epsilon.fill_(self.epsilon)

    @classmethod
    def problems(cls, config: DQNConfig, agent: AgentConfig) -> Iterator[str]:
        """There is no actor that could do without the memory of the critic."""
        yield from super().problems(config, agent)
        if agent.encoders is Encoders.separate:
            yield "algorithm=DQN acts by its critic, so there are no two encoders: leave agent.encoders out."
        if agent.arch is Arch.Memory_Markov:
            yield "algorithm=DQN acts by its critic, so in agent=Memory_Markov it could not do without the memory: use agent=Memory."

    @classmethod
    def make_agent(cls, config: DQNConfig, spec: AgentSpec) -> Agent:
        """An agent that acts by its critic."""
        cls.check(config, spec)
        return GreedyAgent(spec, config.critics)

    @property
    def epsilon(self) -> float:
        """The part of random actions after the updates so far."""
        config, done = self.config, min(self.updates / self.config.epsilon_updates, 1.0)
        return config.epsilon_start + done * (config.epsilon_end - config.epsilon_start)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the critic, and of epsilon."""
        metrics = super().update(batch)
        metrics["epsilon"] = self._policy.epsilon.clone()
        self._policy.epsilon.fill_(self.epsilon)
        return metrics

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """What the target critic says of the action that the critic prefers."""
        return self.min_q(self._choices.taken(critic(), actor().mode()))

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """The action picks one of the critic's outputs."""
        return self._choices.taken(critic(), action)

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """None: the policy is the critic's."""
        return {}, {}

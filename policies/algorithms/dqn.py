"""DQN: Q-learning with a target network (Mnih et al. 2015), as double DQN (van Hasselt et al. 2016).

With a memory, windows and stored states it is R2D2's way of learning (Kapturowski et al. 2019), without its
prioritised replay, n-step targets and rescaled values.
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
from policies.algorithms.off_policy import OffPolicy
from policies.algorithms.off_policy_config import OffPolicyConfig
from policies.algorithms.transitions import HeadOnRows
from utils.options import option


@dataclass
class DQNConfig(OffPolicyConfig):
    """Options of DQN; epsilon is the probability of a random action."""

    critics: int = option(1, "number of estimates of Q; actions are chosen by their mean", low=1)
    critics_in_target: int = option(
        1, "targets take the smallest of so many critics, drawn in each update", low=1
    )
    epsilon_start: float = option(1.0, "probability of a random action at the first env step", low=0, high=1)
    epsilon_end: float = option(0.05, "probability of a random action in the end", low=0, high=1)
    epsilon_env_steps: int | None = option(
        None, "env steps over which epsilon falls to its end; null: half of the run", low=1
    )

    def epsilon(self, env_steps: int, total: int) -> float:
        """The probability of a random action after so many of a run's env steps."""
        # A straight line from start to end, then level.
        progress = min(env_steps / (self.epsilon_env_steps or max(total / 2, 1)), 1.0)
        return self.epsilon_start + progress * (self.epsilon_end - self.epsilon_start)


class GreedyAgent(Agent):
    """Acts by its critic: the actor is another head on what the critic sees and remembers."""

    def __init__(self, spec: AgentSpec, config: DQNConfig) -> None:
        super().__init__(spec, partial(QOfChoicesHead, **config.critic_options))
        assert isinstance(self.actions, Choices)
        # The actor owns no parameter: encoder, memory and estimates are the critic's.
        self.head = EpsilonGreedyHead(self.critic.head, self.actions).to(spec.device)
        self.actor = Network(self.critic.encoder, self.critic.branch, self.head, self.critic.inference)
        # What they share is unrolled once in an update, and its gradient is the critic's.
        self.shares = True


class DQN(OffPolicy):
    """Actions 1..n; the policy is epsilon-greedy, and has no parameters of its own.

        a* = argmax_a Q(h', s', a)
        y  = r' + gamma c Q'(h', s', a*)
        J  = E[(Q(h, s, a) - y)^2]

    Q' moves towards Q by tau in every update, rather than all at once after many. The error is not clipped to
    a slope of 1, which would count in units of the reward; see `max_grad_norm`. An action that `action_mask`
    forbids is neither a* nor ever taken. Epsilon falls with the env steps, in a straight line; evaluation is
    greedy.
    """

    Config = DQNConfig
    config: DQNConfig
    serves = (ActionKind.discrete,)

    def __init__(self, config: DQNConfig, agent: Agent, *, seed: int) -> None:
        super().__init__(config, agent, seed=seed)
        assert isinstance(agent, GreedyAgent) and isinstance(agent.actions, Choices)
        # The head reads epsilon from its buffer, so acting never asks the algorithm.
        self._choices, self._policy = agent.actions, agent.head
        self._policy.epsilon.fill_(config.epsilon_start)

    @classmethod
    def problems(cls, config: DQNConfig, agent: AgentConfig) -> Iterator[str]:
        """One sentence for each option that needs an actor apart from the critic."""
        # The actor is a second head on the critic's memory: it has neither another memory nor none.
        if agent.encoders is Encoders.separate:
            yield (
                "algorithm=DQN acts by its critic, so there are no two encoders: leave agent.encoders out."
            )
        if agent.arch is Arch.Memory_Markov:
            yield (
                "algorithm=DQN acts by its critic, so in agent=Memory_Markov it could not do without the "
                "memory: use agent=Memory."
            )
        yield from super().problems(config, agent)

    @classmethod
    def warnings(cls, config: DQNConfig, total: int) -> Iterator[str]:
        """A sentence if the run ends before epsilon has fallen."""
        if config.epsilon_env_steps is not None and config.epsilon_env_steps > total:
            yield (
                f"Warning: epsilon falls over algorithm.epsilon_env_steps={config.epsilon_env_steps:,}, and "
                f"train.n_env_steps_total={total:,} ends before: set it to null, half of the run."
            )

    @classmethod
    def make_agent(cls, config: DQNConfig, spec: AgentSpec) -> Agent:
        """An agent that acts by its critic."""
        cls.check(config, spec)
        return GreedyAgent(spec, config)

    def at(self, env_steps: int, total: int) -> None:
        """What the base sets, and epsilon."""
        super().at(env_steps, total)
        # Epsilon is a buffer of the agent, so actors elsewhere and checkpoints have it too. It never rises: a
        # run that is prolonged would forget by random actions what it has learned.
        self._policy.epsilon.clamp_(max=self.config.epsilon(env_steps, total))

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the critic."""
        # The metric is a copy: it is read after the buffer has changed.
        return super().update(batch) | {"epsilon": self._policy.epsilon.clone()}

    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """[M] V', the target critic's estimate for the action that the critic prefers."""
        # Double DQN: one network chooses, the other values, so that an error of one is not chosen for its
        # size. The choice is by the mean of the estimates, the value by the smallest of those in the target.
        greedy = actor().mode()
        return self.min_q(self._choices.taken(critic(), greedy))

    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] Q of the actions that were taken: one of the critic's n outputs."""
        return self._choices.taken(critic(), action)

    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """None: the policy has no parameters of its own."""
        return {}, {}

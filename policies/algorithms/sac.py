"""SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv:1812.05905), on rows that may be remembered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from buffers.base import Batch, Needs, Sample
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec, Arch
from policies.agents.branches import vector
from policies.agents.heads import TwinQHead
from policies.algorithms.base import Algorithm, AlgorithmConfig, ReturnHorizon
from policies.returns import successor
from utils.options import option


@dataclass
class SACConfig(AlgorithmConfig):
    """Options of SAC."""

    batch_size: int = option(32, "trials (or windows) in a batch, for agents that remember", low=1)
    transitions_batch_size: int = option(256, "transitions in a batch, for Markov agents", low=1)
    window: int = option(0, "rows of a trial to train on at once, its memory empty before the first; 0 takes whole trials", low=0)
    tau: float = option(0.005, "how far the target critic moves towards the critic in each update", above=0, high=1)
    target_entropy: float | None = option(None, "entropy (nats) that the temperature aims at; null is minus the number of action dimensions")
    init_temperature: float = option(0.1, "alpha at the start", above=0)
    max_grad_norm: float | None = option(None, "clip the gradient norms of actor and critic; null does not", above=0)


@dataclass
class _Selected:
    """The rows that train, and the rows whose value follows them: flat row numbers [M] into [T * B]."""

    rows: Tensor
    successors: Tensor
    carries: Tensor
    next_reward: Tensor


def _pick(values: Tensor, rows: Tensor) -> Tensor:
    return values.flatten(0, 1).index_select(0, rows)


class SAC(Algorithm):
    """Off-policy, maximum entropy. Owns the agent's parameters, a target critic, the temperature, three optimisers and its noise."""

    Config = SACConfig

    @classmethod
    def needs(cls, config: SACConfig, arch: Arch) -> Needs:
        """Transitions for Markov agents; whole trials, or windows of them, where somebody remembers."""
        if arch is Arch.Markov:
            return Needs(on_policy=False, sample=Sample.transitions, batch_size=config.transitions_batch_size)
        sample = Sample.windows if config.window else Sample.trials
        return Needs(on_policy=False, sample=sample, batch_size=config.batch_size, window=config.window)

    @classmethod
    def make_agent(cls, config: SACConfig, spec: AgentSpec) -> Agent:
        """An agent whose critic estimates Q twice."""
        return Agent(spec, TwinQHead, extras=cls.needs(config, spec.config.arch).extras)

    def __init__(self, config: SACConfig, agent: Agent, *, seed: int) -> None:
        self.config = config
        self.agent = agent
        self.target = deepcopy(agent.critic).requires_grad_(False)
        device = next(agent.parameters()).device
        self.log_temperature = torch.tensor(math.log(config.init_temperature), device=device, requires_grad=True)
        self.target_entropy = -float(agent.action_dim) if config.target_entropy is None else config.target_entropy
        self.parameters = {"critic": list(agent.critic.parameters()), "actor": list(agent.actor.parameters()), "temperature": [self.log_temperature]}
        self.optimizers = {name: torch.optim.Adam(owned, lr=config.learning_rate, fused=True) for name, owned in self.parameters.items()}
        self.generator = torch.Generator(device).manual_seed(seed)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of critic, actor and temperature: all three gradients are taken where the parameters stood before it."""
        batch = batch.without_padding()
        selected = self._select(batch)
        remembered = self.agent.critic.branch.unroll(batch)
        actor_features = self.agent.actor.branch.unroll(batch, batch.state)

        critic_loss, q = self._critic_loss(batch, selected, remembered, actor_features)
        actor_loss, log_prob = self._actor_loss(batch, selected, remembered.detach(), actor_features)
        # (18)  J(alpha) = E[-alpha (log pi(a) + H)]
        temperature_loss = -(self.log_temperature.exp() * (log_prob.detach() + self.target_entropy)).mean()

        metrics = {"critic_loss": critic_loss, "actor_loss": actor_loss, "q": q.mean(), "entropy": -log_prob.mean()}
        metrics["temperature"] = self.log_temperature.exp()
        # All gradients before the first step: a fused optimiser changes parameters without autograd noticing.
        for name, loss in {"critic": critic_loss, "actor": actor_loss, "temperature": temperature_loss}.items():
            self._differentiate(name, loss)
        for name in self.parameters:
            metrics[f"{name}_grad_norm"] = self._step(name)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.agent.critic.parameters(), strict=True):
                old.lerp_(new, self.config.tau)
        return {name: value.detach() for name, value in metrics.items()}

    def _select(self, batch: Batch) -> _Selected:
        config, (_, columns) = self.config, batch.shape
        whole_trial = config.return_horizon is ReturnHorizon.trial
        index, carries = successor(batch, whole_trial=whole_trial, timeout_bootstrap=config.timeout_bootstrap)
        flat = index * columns + torch.arange(columns, device=index.device)
        rows = batch.trains.flatten().nonzero().squeeze(1)
        return _Selected(rows, _pick(flat, rows), _pick(carries, rows), _pick(batch.reward, rows + columns))

    def _critic_loss(self, batch: Batch, selected: _Selected, remembered: Tensor, actor_features: Tensor) -> tuple[Tensor, Tensor]:
        # (5)   J_Q = E[(Q_i(h, s, a) - y)^2],  i = 1, 2
        rows = selected.rows
        target = self.targets(batch, selected, actor_features)
        q = self.agent.critic.head(_pick(remembered, rows), _pick(vector(batch.obs), rows), _pick(batch.action, rows))
        return mse_loss(q, target.expand_as(q)), q

    @torch.no_grad()
    def targets(self, batch: Batch, selected: _Selected, actor_features: Tensor) -> Tensor:
        """[M] y = r' + gamma c (min_i Q'_i(h', s', a') - alpha log pi(a')), a' ~ pi, at the row whose value follows."""
        rows = selected.successors
        obs = _pick(vector(batch.obs), rows)
        action, log_prob = self.agent.actor.head(_pick(actor_features, rows), obs).sample_with_log_prob(self._noise(rows))
        q = self.target.head(_pick(self.target.branch.unroll(batch), rows), obs, action)
        value = q.min(0).values - self.log_temperature.exp() * log_prob
        return selected.next_reward + self.config.discount * selected.carries * value

    def _actor_loss(self, batch: Batch, selected: _Selected, remembered: Tensor, actor_features: Tensor) -> tuple[Tensor, Tensor]:
        # (9)   J_pi = E[alpha log pi(a) - min_i Q_i(h, s, a)],  a = f(noise; h, s)
        rows = selected.rows
        obs = _pick(vector(batch.obs), rows)
        action, log_prob = self.agent.actor.head(_pick(actor_features, rows), obs).sample_with_log_prob(self._noise(rows))
        q = self.agent.critic.head(_pick(remembered, rows), obs, action).min(0).values
        return (self.log_temperature.exp().detach() * log_prob - q).mean(), log_prob

    def _differentiate(self, name: str, loss: Tensor) -> None:
        """Gradients of what one optimiser owns; `inputs` keeps them from everything that others own."""
        self.optimizers[name].zero_grad()
        loss.backward(inputs=self.parameters[name])

    def _step(self, name: str) -> Tensor:
        """One step of one optimiser; the norm of its gradient."""
        owned = self.parameters[name]
        norm = nn.utils.get_total_norm([parameter.grad for parameter in owned if parameter.grad is not None])
        if self.config.max_grad_norm is not None and name != "temperature":
            nn.utils.clip_grads_with_norm_(owned, self.config.max_grad_norm, norm)
        self.optimizers[name].step()
        return norm

    def _noise(self, rows: Tensor) -> Tensor:
        return torch.randn(len(rows), self.agent.action_dim, generator=self.generator, device=rows.device)

    def _modules(self) -> Iterator[tuple[str, Any]]:
        yield "agent", self.agent
        yield "target", self.target
        for name, optimizer in self.optimizers.items():
            yield f"{name}_optimizer", optimizer

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only, which torch.load(weights_only=True) reads."""
        parts = {name: module.state_dict() for name, module in self._modules()}
        return {**parts, "log_temperature": self.log_temperature.detach(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for name, module in self._modules():
            module.load_state_dict(state[name])
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.generator.set_state(state["generator"].cpu())

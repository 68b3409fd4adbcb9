"""What off-policy algorithms share: transitions, critics with targets, and an optimiser for each owner.

Each row that trains gives a transition (h, s, a, r', h', s'): h is the memory's output, s the observation,
and s' the row whose value follows (policies/returns.py). The critics Q_1..Q_N learn

    y   = r' + gamma c V'(h', s')                        c is 0 where the return stops, else 1
    J_Q = E[(Q_i(h, s, a) - y)^2],  i = 1..N

where each algorithm defines V' by its target critic Q', which follows Q by tau. With
`critics` N = 2 and `critics_in_target` M = 2, the smaller of the two is the clipped double Q of TD3 and SAC.
With M < N this is the ensemble of REDQ (Chen et al. 2021, arXiv:2101.05982): V' takes the smallest of M
critics that are drawn anew in each update, and the policy climbs the mean of all N.

The policy and the temperature learn in one of `policy_delay` updates. All gradients of an update are taken
where the parameters stood before it. Where actor and critic share an encoder and a memory, both belong to the
critic: the actor reads their output, and its gradient stops there.

A window may start from the state that the actor's memory had there as it acted (R2D2; Kapturowski et al.
2019). It is stale by as many updates as came since, which a burn-in mends. The same state serves the target
actor, and the critics where they share the actor's memory.

Where a memory is to infer the task (policies/agents/task_inference.py), that loss is added to the critic's or
the actor's, whichever owns the memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from buffers.base import Batch, Needs
from policies.agents.agent import Agent, Network
from policies.agents.base import AgentConfig, Arch, Features, select_rows
from policies.algorithms.base import Algorithm, optimizer_groups
from policies.algorithms.off_policy_config import ActorCriticConfig, option_problems, sampling_needs
from policies.algorithms.step_sizes import StepSizes
from policies.algorithms.transitions import HeadOnRows, Transitions, transitions_of
from policies.nn.averaging import follow
from utils.parallel import run_both


class OffPolicy(Algorithm):
    """Owns the agent's parameters, their targets, and an optimiser for each owner of parameters.

    A subclass defines the value of a row (`next_value`), which of the critic's outputs belong to an action
    (`q_values`), and what its policy minimises (`policy_losses`).
    """

    config: Any
    # Whether targets ask a target policy, which follows by tau (TD3), or the policy as it is (SAC).
    target_policy: ClassVar[bool] = False

    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None:
        self.config = config
        self.agent = agent
        # Target networks (Mnih et al. 2015) start as copies, and `follow` moves them afterwards.
        self._online = nn.ModuleList([agent.critic, agent.actor] if self.target_policy else [agent.critic])
        self._targets = deepcopy(self._online).requires_grad_(False)
        # The policy's losses read the critic through this view.
        self._frozen_view = _frozen_view(agent.critic.head)
        self.device = next(agent.parameters()).device
        # All that is drawn in updates comes from one stream, whose state is saved.
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.policy_delay = config.policy_delay if isinstance(config, ActorCriticConfig) else 1
        # The place in the rhythm of delayed policy updates, which a resumed run continues.
        self.updates = 0
        # Metrics of the last update in which the policy learned.
        self.policy_metrics: dict[str, Tensor] = {}
        # One optimiser for each owner: a parameter belongs to one owner, and so to one loss.
        self.parameters: dict[str, list[Tensor]] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        for name, parameters in agent.parameter_groups().items():
            self.add_optimizer(name, parameters)

    def add_optimizer(self, name: str, parameters: Sequence[Tensor]) -> None:
        """Add an optimiser for these parameters, if there are any; it minimises the loss of that name."""
        if parameters:
            self.parameters[name] = list(parameters)
            groups = optimizer_groups(parameters, self.agent, self.config)
            self.optimizers[name] = torch.optim.Adam(
                groups, lr=self.config.learning_rate, fused=self.device.type != "mps"
            )
            self.step_sizes = (*self.step_sizes, StepSizes(self.optimizers[name]))

    @classmethod
    def needs(cls, config: Any, arch: Arch) -> Needs:
        """Transitions for Markov agents; whole trials, or windows of them, for agents with a memory."""
        return sampling_needs(config, arch)

    @classmethod
    def problems(cls, config: Any, agent: AgentConfig) -> Iterator[str]:
        """One sentence for each option of ensembles and windows that cannot work with the others."""
        yield from option_problems(config, agent)
        if config.critics_in_target > config.critics:
            yield (
                f"algorithm.critics_in_target={config.critics_in_target} is more than "
                f"algorithm.critics={config.critics}."
            )

    @property
    def target_critic(self) -> Network:
        """The critic whose values are in the targets."""
        return self._targets[0]  # pyright: ignore[reportReturnType]

    @property
    def target_actor(self) -> Network:
        """The actor whose actions are in the targets: a target network, or the actor as it is."""
        if not self.target_policy:
            return self.agent.actor
        return self._targets[1]  # pyright: ignore[reportReturnType]

    # -- what an algorithm defines ---------------------------------------------------------------------------

    @abstractmethod
    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """[M] V' of the next rows, by the target critic and `target_actor`; no gradient is kept."""

    @abstractmethod
    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] all estimates of Q for the actions that were taken."""

    @abstractmethod
    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """({owner: loss} of all owners but the critic, other metrics); the critic gets no gradient."""

    @property
    def all_in_target(self) -> bool:
        """Whether every critic is in every target."""
        return self.config.critics_in_target >= self.config.critics

    def min_q(self, q: Tensor) -> Tensor:
        """[N, M] -> [M]: the smallest estimate, of all critics or of those drawn for this target (REDQ)."""
        if self.all_in_target:
            return q.min(0).values
        # The same subset for all rows of the batch (algorithm 1 of REDQ).
        order = torch.randperm(len(q), generator=self.generator, device=self.device)
        return q[order[: self.config.critics_in_target]].min(0).values

    # -- one update ------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the critic, and one of the policy if it is its turn."""
        # 1. The rows as the networks read them, and the transitions among them.
        batch = self.agent.normalise(batch)
        transitions = transitions_of(batch, self.config)
        policy_learns = self.updates % self.policy_delay == 0
        seed = self.agent.draw_inference_seed(self.generator)

        # 2. Forward: Q of the actions that were taken, and the targets y.
        (critic, q), (actor, target) = self._forward(batch, transitions, policy_learns)

        # 3. Backward. All gradients are taken before the first step: a fused optimiser changes parameters
        #    without autograd noticing.
        def differentiate_critic() -> tuple[Tensor, dict[str, Tensor]]:
            inference_losses, inference_metrics = self.agent.inference_losses(batch, seed, critic=critic)
            loss = sum(inference_losses, mse_loss(q, target.expand_as(q)))  # the mean over critics and rows
            self._differentiate("critic", loss)
            return loss, inference_metrics

        def differentiate_policy() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            if not policy_learns or actor is None:
                return {}, {}
            return self._differentiate_policy(batch, transitions, critic, actor, seed)

        # Two threads share the work where that pays. Only the policy's draws from the generator.
        (critic_loss, critic_metrics), (policy_losses, policy_metrics) = run_both(
            differentiate_critic, differentiate_policy, rows=batch.reward.numel(), device=self.device
        )

        # 4. One step of each optimiser that has a new gradient.
        norms = {name: self._step(name) for name in ("critic", *policy_losses)}

        # 5. Targets follow; a target policy and its critic only when the policy has learned (TD3).
        if policy_learns or not self.target_policy:
            follow(self._targets, self._online, self.config.tau)
        self.updates += 1

        # 6. Metrics. While the policy rests, its last ones are repeated, so that every update has all names.
        if policy_learns:
            self.policy_metrics = {f"{name}_loss": loss.detach() for name, loss in policy_losses.items()}
            self.policy_metrics |= {f"{name}_grad_norm": norms[name] for name in policy_losses}
            self.policy_metrics |= {name: value.detach() for name, value in policy_metrics.items()}
        metrics = {"critic_loss": critic_loss.detach(), "critic_grad_norm": norms["critic"]}
        return metrics | critic_metrics | {"q": q.detach().mean()} | self.policy_metrics

    def _forward(
        self, batch: Batch, transitions: Transitions, policy_learns: bool
    ) -> tuple[tuple[Features, Tensor], tuple[Features | None, Tensor]]:
        """((the critic's features, Q of the actions taken), (the actor's features, the targets))."""

        def q_of_actions() -> tuple[Features, Tensor]:
            # A stored state is the actor's: it serves the critic only where they share a memory.
            critic = self.agent.critic.unroll(batch, batch.state if self.agent.shares else None)
            head = HeadOnRows(self.agent.critic.head, critic.select_rows(transitions.rows))
            return critic, self.q_values(head, select_rows(batch.action, transitions.rows))

        def targets(critic: Features | None) -> tuple[Features | None, Tensor]:
            actor = self._actor_features(batch, critic, policy_learns)
            return actor, self.targets(batch, transitions, actor)

        # An actor that shares the critic's memory reads its output, and so has to wait for it.
        if self.agent.shares:
            q_side = q_of_actions()
            return q_side, targets(q_side[0])
        num_rows = batch.reward.numel()
        return run_both(q_of_actions, lambda: targets(None), rows=num_rows, device=self.device)

    def _actor_features(self, batch: Batch, critic: Features | None, learns: bool) -> Features | None:
        """What the actor's head reads, with gradients where it learns; None where nothing needs it."""
        if critic is not None:
            return critic.detach()  # a shared memory learns by the critic's loss alone
        # The target asks a network of its own, and the policy rests: nothing needs the actor's features.
        if not learns and self.target_policy:
            return None
        with torch.set_grad_enabled(learns):
            return self.agent.actor.unroll(batch, batch.state)

    @torch.no_grad()
    def targets(self, batch: Batch, transitions: Transitions, actor: Features | None) -> Tensor:
        """[M] y = r' + gamma c V'(h', s'); `actor` holds the features of the actor as it is."""
        # The target networks read the rows by memories of their own, from the same start as the online ones.
        critic = self.target_critic.unroll(batch, batch.state if self.agent.shares else None)
        if self.target_policy:
            actor = critic if self.agent.shares else self.target_actor.unroll(batch, batch.state)
        # Without a target policy, the values ask the actor as it is (SAC), whose features are at hand.
        assert actor is not None
        value = self.next_value(
            HeadOnRows(self.target_critic.head, critic.select_rows(transitions.next_rows)),
            HeadOnRows(self.target_actor.head, actor.select_rows(transitions.next_rows)),
        )
        # The next row's reward, and its discounted value unless the return stops there.
        return transitions.next_reward + self.config.discount * transitions.bootstraps * value

    def _differentiate_policy(
        self, batch: Batch, transitions: Transitions, critic: Features, actor: Features, seed: int
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Differentiate the losses of all owners but the critic; return them, and other metrics."""
        # The policy climbs Q through its action: the critic's parameters and features are constants here.
        losses, metrics = self.policy_losses(
            HeadOnRows(self._frozen_view, critic.detach().select_rows(transitions.rows)),
            HeadOnRows(self.agent.actor.head, actor.select_rows(transitions.rows)),
        )
        # An actor with a memory of its own infers the task from it too.
        inference_losses, inference_metrics = self.agent.inference_losses(batch, seed, actor=actor)
        if inference_losses:
            losses["actor"] = sum(inference_losses, losses["actor"])
        for name, loss in losses.items():
            self._differentiate(name, loss)
        return losses, metrics | inference_metrics

    def _differentiate(self, name: str, loss: Tensor) -> None:
        """Set the gradients of one owner's parameters; `inputs` keeps them from all that others own."""
        self.optimizers[name].zero_grad()
        loss.backward(inputs=self.parameters[name])

    def _step(self, name: str) -> Tensor:
        """Take one step of one optimiser; return the norm of its gradient before it is clipped."""
        parameters = self.parameters[name]
        # The norm is that of all gradients of the owner together; a temperature's is never clipped.
        norm = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        if self.config.max_grad_norm is not None and name in ("critic", "actor"):
            nn.utils.clip_grads_with_norm_(parameters, self.config.max_grad_norm, norm)
        self.optimizers[name].step()
        return norm

    # -- what continues in another process -------------------------------------------------------------------

    def _modules(self) -> Iterator[tuple[str, Any]]:
        yield "agent", self.agent
        yield "targets", self._targets
        for name, optimizer in self.optimizers.items():
            yield f"{name}_optimizer", optimizer

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only, which torch.load(weights_only=True) reads."""
        return {
            **{name: module.state_dict() for name, module in self._modules()},
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "policy_metrics": dict(self.policy_metrics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        for name, module in self._modules():
            module.load_state_dict(state[name])
        self.generator.set_state(state["generator"].cpu())
        self.updates = state["updates"]
        self.policy_metrics = {name: value.to(self.device) for name, value in state["policy_metrics"].items()}


def _frozen_view(head: nn.Module) -> nn.Module:
    """A copy of a head that shares its numbers, but whose parameters are constants for autograd."""
    view = deepcopy(head).requires_grad_(False)
    # `.data` shares the memory, so each step of the optimiser shows here too. No gradient is computed for the
    # critic's parameters only to be thrown away.
    view_tensors = (*view.parameters(), *view.buffers())
    for tensor, original in zip(view_tensors, (*head.parameters(), *head.buffers()), strict=True):
        tensor.data = original.data
    return view

"""What off-policy algorithms share: rows that train, an ensemble of critics with a target, an optimiser for
each owner, and one update of all.

From each row that trains, a transition (h, s, a, r', h', s'): h is what is remembered, s the observation, and
s' the row whose value follows (policies/returns.py). The critics Q_1..Q_N learn

    y   = r' + gamma c V'(h', s')                        c is 0 where the return stops and nothing follows
    J_Q = E[(Q_i(h, s, a) - y)^2],  i = 1..N

where an algorithm says what V' is by its target critic, which follows by tau. With `critics` N > 2 and
`critics_in_target` M < N this is the ensemble of REDQ (Chen et al. 2021, arXiv:2101.05982): V' takes the
smallest of M critics drawn anew in each update, and the policy climbs the mean of all. Where M = N all count:
the smallest of the two is the clipped double Q of TD3 and SAC.

Policy and temperature learn in one update of `policy_delay`, and where the policy has a target too, targets
follow then, as in TD3. All gradients of an update are taken where the parameters stood before it. Where actor
and critic share what is seen and remembered, it is the critic's: the actor reads it, and its gradient stops
there.

A window may start from what the actor remembered there as it acted (R2D2; Kapturowski et al. 2019), stale by
as many updates as came since, which a burn-in mends. The same state serves the actor that targets ask, and
the critics where they share the actor's memory.

Where a memory is to infer the task (policies/agents/task_inference.py), that loss is added to the critic's or
the actor's, whoever owns the memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from buffers.base import Batch, Needs, Sample
from policies.agents.agent import Agent, Network
from policies.agents.base import WITH_MEMORY, WITHOUT_MEMORY, AgentConfig, Arch, Features, select_rows
from policies.algorithms.base import Algorithm, AlgorithmConfig, ReturnHorizon, optimizer_groups
from policies.returns import successor
from utils.options import OnlyIf, option
from utils.parallel import First, Second, run_both


class WindowStart(Enum):
    """What a memory holds before the first row of a window that it reads."""

    zero = "zero"
    stored = "stored"


FROM_STORED_STATE = OnlyIf(
    lambda run, needs: needs.state_every > 0,
    "no window starts from a stored state; see algorithm.window_start",
)


@dataclass
class OffPolicyConfig(AlgorithmConfig):
    """Options of all off-policy algorithms."""

    batch_size: int = option(
        32, "trials (or windows) in a batch, for agents that remember", low=1, only_if=WITH_MEMORY
    )
    transitions_batch_size: int = option(
        256, "transitions in a batch, for Markov agents", low=1, only_if=WITHOUT_MEMORY
    )
    window: int = option(
        0,
        "rows of a trial to train on at once, for agents that remember; 0 takes whole trials, and is better than windows of about a trial's length: "
        "they reach beyond its first row and its last, so that each row is in equally many, and would be half empty",
        low=0,
        only_if=WITH_MEMORY,
    )
    burn_in: int = option(
        0,
        "rows before a window that its memory reads first: no loss is taken over them, but gradients go through them",
        low=0,
        only_if=WITH_MEMORY,
    )
    window_start: WindowStart = option(
        WindowStart.zero,
        "what the memory holds before the first row that it reads: zero, nothing; stored, what the actor's held there while it collected "
        "(R2D2). With agent.encoders=separate the critic's never acted and starts with nothing: give it a burn_in",
        only_if=WITH_MEMORY,
    )
    state_every: int | None = option(
        None,
        "with window_start=stored: what the actor remembers is kept before every so many rows, where windows and burn-ins start; null: half a window",
        low=1,
        only_if=FROM_STORED_STATE,
    )
    tau: float = option(
        0.005, "how far the target critic moves towards the critic in each update", above=0, high=1
    )
    critics: int = option(2, "estimates of Q, each by a head of its own", low=1)
    critics_in_target: int = option(
        2, "targets take the smallest of so many critics, drawn anew in each update (REDQ: 2 of 10)", low=1
    )
    max_grad_norm: float | None = option(
        None, "clip the gradient norms of actor and critic; null does not", above=0
    )


@dataclass
class ActorCriticConfig(OffPolicyConfig):
    """Options of those that have a policy beside their critic."""

    policy_delay: int = option(1, "the policy learns in one of so many updates", low=1)


@dataclass
class Transitions:
    """The rows that train, and the rows whose value follows them: flat row numbers [M] into [T * B]."""

    rows: Tensor
    next_rows: Tensor
    bootstraps: Tensor
    next_reward: Tensor


class HeadOnRows(NamedTuple):
    """A network at some rows, [M]: called as its head, but for what it sees there."""

    head: nn.Module
    seen: Features

    def __call__(self, *inputs: Tensor) -> Any:
        """A distribution of an actor; Q [N, M] or [N, M, n] of a critic."""
        return self.head(self.seen, *inputs)


class OffPolicy(Algorithm):
    """Owns the agent's parameters, a target critic (and a target actor, where `target_policy` says so), and
    an optimiser for each owner.

    A subclass says what is the value of a row (`next_value`), which of the critic's numbers belong to an
    action (`q_values`), and what its policy minimises (`policy_losses`).
    """

    config: Any
    target_policy: ClassVar[bool] = False
    """True: targets ask a target policy that follows by tau (TD3). False: the policy as it is (SAC)."""

    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None:
        self.config = config
        self.agent = agent
        self._online = nn.ModuleList([agent.critic, agent.actor] if self.target_policy else [agent.critic])
        self._targets = deepcopy(self._online).requires_grad_(False)
        self._frozen_view = _frozen_view(agent.critic.head)
        self.device = next(agent.parameters()).device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.policy_delay = config.policy_delay if isinstance(config, ActorCriticConfig) else 1
        self.updates = 0
        self.policy_metrics: dict[str, Tensor] = {}
        """Metrics of the last update in which the policy learned."""
        self.parameters: dict[str, list[Tensor]] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        for name, owned in agent.parameter_groups().items():
            self.add_optimizer(name, owned)

    def add_optimizer(self, name: str, parameters: Sequence[Tensor]) -> None:
        """An optimiser for these parameters, if there are any; it minimises the loss of that name."""
        if parameters:
            self.parameters[name] = list(parameters)
            groups = optimizer_groups(parameters, self.agent, self.config)
            self.optimizers[name] = torch.optim.Adam(
                groups, lr=self.config.learning_rate, fused=self.device.type != "mps"
            )

    @classmethod
    def needs(cls, config: Any, arch: Arch) -> Needs:
        """Transitions for Markov agents; whole trials, or windows of them, where somebody remembers."""
        if arch is Arch.Markov:
            return Needs(on_policy=False, sample=Sample.transitions, batch_size=config.transitions_batch_size)
        sample = Sample.windows if config.window else Sample.trials
        every = _state_every(config) if config.window and config.window_start is WindowStart.stored else 0
        return Needs(
            on_policy=False,
            sample=sample,
            batch_size=config.batch_size,
            window=config.window,
            burn_in=config.burn_in,
            state_every=every,
        )

    @classmethod
    def problems(cls, config: Any, agent: AgentConfig) -> Iterator[str]:
        """Ensembles and windows."""
        yield from super().problems(config, agent)
        if config.critics_in_target > config.critics:
            yield f"algorithm.critics_in_target={config.critics_in_target} is more than algorithm.critics={config.critics}."
        if config.burn_in and not config.window and agent.arch is not Arch.Markov:
            yield f"algorithm.burn_in={config.burn_in} goes before a window, and algorithm.window=0 takes whole trials."
        if config.window_start is WindowStart.stored and agent.arch is not Arch.Markov:
            yield from _problems_of_stored(config, agent)

    @property
    def target_critic(self) -> Network:
        """The target critic."""
        return self._targets[0]  # pyright: ignore[reportReturnType]

    @property
    def target_actor(self) -> Network:
        """The actor that targets ask."""
        return self._targets[1] if self.target_policy else self.agent.actor  # pyright: ignore[reportReturnType]

    # -- what an algorithm says ------------------------------------------------------------------------------

    @abstractmethod
    def next_value(self, critic: HeadOnRows, actor: HeadOnRows) -> Tensor:
        """[M] V' of rows, by the target critic, and by the actor that `target_policy` names; no gradient is
        kept.
        """

    @abstractmethod
    def q_values(self, critic: HeadOnRows, action: Tensor) -> Tensor:
        """[N, M] all estimates of the actions that were taken."""

    @abstractmethod
    def policy_losses(
        self, critic: HeadOnRows, actor: HeadOnRows
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """({owner: loss}, other metrics): what all owners but the critic minimise; the critic's parameters
        get no gradient from them.
        """

    def min_q(self, q: Tensor) -> Tensor:
        """[N, M] -> [M] the estimate that targets believe."""
        if self.all_in_target:
            return q.min(0).values
        drawn = torch.randperm(len(q), generator=self.generator, device=self.device)[
            : self.config.critics_in_target
        ]
        return q[drawn].min(0).values

    @property
    def all_in_target(self) -> bool:
        """Every critic is in every target."""
        return self.config.critics_in_target >= self.config.critics

    # -- one update ------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One step of the critic, and of the policy if it is its turn."""
        batch = self.agent.normalise(batch)
        transitions = self._transitions(batch)
        learns = self.updates % self.policy_delay == 0
        seed = self.agent.draw_inference_seed(self.generator)
        (critic, q), (actor, target) = self._see(batch, transitions, learns)

        def critic_learns() -> tuple[Tensor, dict[str, Tensor]]:
            inferred, parts = self.agent.inference_losses(batch, seed, critic=critic)
            loss = sum(inferred, mse_loss(q, target.expand_as(q)))
            self._differentiate("critic", loss)
            return loss, parts

        def policy_learns() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            return (
                self._differentiate_policy(batch, transitions, critic, actor, seed)
                if learns and actor is not None
                else ({}, {})
            )

        # All gradients before the first step: a fused optimiser changes parameters without autograd noticing.
        (critic_loss, inferred), (policy_losses, said) = self._both(batch, critic_learns, policy_learns)
        losses = {"critic": critic_loss} | policy_losses
        metrics = {f"{name}_loss": loss.detach() for name, loss in losses.items()}
        metrics |= {f"{name}_grad_norm": self._step(name) for name in losses}
        if learns or not self.target_policy:
            self._update_targets()
        self.updates += 1
        of_critic = (
            {name: metrics.pop(name) for name in ("critic_loss", "critic_grad_norm")}
            | inferred
            | {"q": q.detach().mean()}
        )
        if learns:
            self.policy_metrics = metrics | {name: value.detach() for name, value in said.items()}
        return (
            of_critic | self.policy_metrics
        )  # the same names in every update, so that their means are means

    def _see(
        self, batch: Batch, transitions: Transitions, learns: bool
    ) -> tuple[tuple[Features, Tensor], tuple[Features | None, Tensor]]:
        """(what the critic sees, Q of what was done), (what the actor sees, targets)."""

        def of_critic() -> tuple[Features, Tensor]:
            seen = self.agent.critic.unroll(batch, batch.state if self.agent.shares else None)
            return seen, self.q_values(
                HeadOnRows(self.agent.critic.head, seen.select_rows(transitions.rows)),
                select_rows(batch.action, transitions.rows),
            )

        def of_actor(critic: Features | None) -> tuple[Features | None, Tensor]:
            actor = self._actor_sees(batch, critic, learns)
            return actor, self.targets(batch, transitions, actor)

        if self.agent.shares:
            critic = of_critic()
            return critic, of_actor(critic[0])
        return self._both(batch, of_critic, lambda: of_actor(None))

    def _differentiate_policy(
        self, batch: Batch, transitions: Transitions, critic: Features, actor: Features, seed: int
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The losses of all owners but the critic, differentiated, and other metrics."""
        at = [
            HeadOnRows(head, seen.select_rows(transitions.rows))
            for head, seen in ((self._frozen_view, critic.detach()), (self.agent.actor.head, actor))
        ]
        losses, said = self.policy_losses(*at)
        inferred, parts = self.agent.inference_losses(batch, seed, actor=actor)
        if inferred:
            losses["actor"] = sum(inferred, losses["actor"])
        for name, loss in losses.items():
            self._differentiate(name, loss)
        return losses, said | parts

    def _both(
        self, batch: Batch, first: Callable[[], First], second: Callable[[], Second]
    ) -> tuple[First, Second]:
        """Side by side, if it pays; all that is drawn is drawn by the second."""
        return run_both(first, second, rows=batch.reward.numel(), device=self.device)

    def _transitions(self, batch: Batch) -> Transitions:
        config, (_, columns) = self.config, batch.shape
        whole_trial = config.return_horizon is ReturnHorizon.trial
        index, bootstraps = successor(
            batch, whole_trial=whole_trial, timeout_bootstrap=config.timeout_bootstrap
        )
        flat = index * columns + torch.arange(columns, device=index.device)
        rows = batch.trains.flatten().nonzero().squeeze(1)
        return Transitions(
            rows,
            select_rows(flat, rows),
            select_rows(bootstraps, rows),
            select_rows(batch.reward, rows + columns),
        )

    def _actor_sees(self, batch: Batch, critic: Features | None, learns: bool) -> Features | None:
        """What the actor reads of all rows: with gradients where it learns; what the critic sees, where they
        share it; None if nobody asks.
        """
        if critic is not None:
            return critic.detach()
        if not learns and self.target_policy:
            return None
        with torch.set_grad_enabled(learns):
            return self.agent.actor.unroll(batch, batch.state)

    @torch.no_grad()
    def targets(self, batch: Batch, transitions: Transitions, actor: Features | None) -> Tensor:
        """[M] y = r' + gamma c V'(h', s'); `actor` is what the actor sees, for a value that asks the policy
        as it is.
        """
        rows = transitions.next_rows
        critic = self.target_critic.unroll(batch, batch.state if self.agent.shares else None)
        if self.target_policy:
            actor = critic if self.agent.shares else self.target_actor.unroll(batch, batch.state)
        assert actor is not None
        value = self.next_value(
            HeadOnRows(self.target_critic.head, critic.select_rows(rows)),
            HeadOnRows(self.target_actor.head, actor.select_rows(rows)),
        )
        return transitions.next_reward + self.config.discount * transitions.bootstraps * value

    def _differentiate(self, name: str, loss: Tensor) -> None:
        """Gradients of what one optimiser owns; `inputs` keeps them from everything that others own."""
        self.optimizers[name].zero_grad()
        loss.backward(inputs=self.parameters[name])

    def _step(self, name: str) -> Tensor:
        """One step of one optimiser; the norm of its gradient."""
        owned = self.parameters[name]
        norm = nn.utils.get_total_norm([parameter.grad for parameter in owned if parameter.grad is not None])
        if self.config.max_grad_norm is not None and name in ("critic", "actor"):
            nn.utils.clip_grads_with_norm_(owned, self.config.max_grad_norm, norm)
        self.optimizers[name].step()
        return norm

    @torch.no_grad()
    def _update_targets(self) -> None:
        for old, new in zip(self._targets.parameters(), self._online.parameters(), strict=True):
            old.lerp_(new, self.config.tau)
        for old, new in zip(self._targets.buffers(), self._online.buffers(), strict=True):
            old.copy_(new)

    # -- what goes on in another process ---------------------------------------------------------------------

    def _modules(self) -> Iterator[tuple[str, Any]]:
        yield "agent", self.agent
        yield "targets", self._targets
        for name, optimizer in self.optimizers.items():
            yield f"{name}_optimizer", optimizer

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only, which torch.load(weights_only=True) reads."""
        parts = {name: module.state_dict() for name, module in self._modules()}
        return {
            **parts,
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "policy_metrics": dict(self.policy_metrics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for name, module in self._modules():
            module.load_state_dict(state[name])
        self.generator.set_state(state["generator"].cpu())
        self.updates = state["updates"]
        self.policy_metrics = {name: value.to(self.device) for name, value in state["policy_metrics"].items()}


def _frozen_view(head: nn.Module) -> nn.Module:
    """The same head, on the same parameters: but for autograd they stand still, and nobody computes gradients
    of them only to throw them away.
    """
    twin = deepcopy(head).requires_grad_(False)
    for mine, theirs in zip(
        (*twin.parameters(), *twin.buffers()), (*head.parameters(), *head.buffers()), strict=True
    ):
        mine.data = theirs.data
    return twin


def _state_every(config: OffPolicyConfig) -> int:
    return config.state_every or max(1, config.window // 2)


def _problems_of_stored(config: OffPolicyConfig, agent: AgentConfig) -> Iterator[str]:
    """What a stored state cannot stand together with."""
    every, name = _state_every(config), "algorithm.window_start=stored"
    if agent.arch is Arch.Memory_Markov:
        yield f"{name} takes what the actor remembered, and in agent=Memory_Markov it remembers nothing: use zero, with algorithm.burn_in."
    if not config.window:
        yield f"{name} is where windows start, and algorithm.window=0 takes whole trials, which start with nothing remembered: use zero."
    elif config.window % every or config.burn_in % every:
        source = (
            f"algorithm.state_every={every}"
            if config.state_every
            else f"algorithm.state_every=null, which is {every},"
        )
        yield (
            f"{source} does not divide algorithm.window={config.window} and algorithm.burn_in={config.burn_in}, and windows start where states are "
            f"stored: use {gcd(config.window, config.burn_in)} or what divides that."
        )

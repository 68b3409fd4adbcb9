"""PPO: clipped policy gradients (Schulman et al. 2017, arXiv:1707.06347) on whole trials, which with a memory
is RL^2 (Duan et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from buffers.base import Batch, Needs, Sample
from policies.agents.actions import ActionKind, Actions
from policies.agents.agent import Agent
from policies.agents.base import WITH_MEMORY, AgentConfig, AgentSpec, Arch, Encoders
from policies.agents.heads import GaussianHead, HeadSizes, PolicyHead, ValueHead
from policies.algorithms.base import Algorithm, AlgorithmConfig, ReturnHorizon, optimizer_groups
from policies.memory.base import Memory, State
from policies.returns import advantages
from utils.options import option

FEWEST_ROWS = 1000
"""Of a part: with fewer, handing it to a thread costs more than it saves."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class PPOConfig(AlgorithmConfig):
    """Options of PPO."""

    discount: float = option(0.97, "gamma, per env step", low=0, high=1)
    learning_rate: float = option(7e-4, "step size of the optimiser", above=0)
    gae_lambda: float = option(
        0.9,
        "lambda of the advantages: 0 believes the value of the next row, 1 the rewards to the end",
        low=0,
        high=1,
    )
    epochs: int = option(3, "times that the rows of an iteration are gone through", low=1)
    minibatches: int = option(4, "gradient steps in each of them; each takes whole columns of rows", low=1)
    window: int = option(
        0,
        "cut those columns into windows of so many rows, which start from what was remembered there; 0 leaves them whole",
        low=0,
        only_if=WITH_MEMORY,
    )
    clip: float = option(
        0.2,
        "how far the probability of an action may move from what it was, as a ratio, before it counts no more",
        above=0,
    )
    clip_value: float | None = option(
        None, "the same for values, in the units that the value head counts in; null does not", above=0
    )
    normalise_value: bool = option(
        False, "let the value head count in deviations of late returns from their mean, whatever their size"
    )
    value_coef: float = option(0.5, "weight of the value's loss beside the policy's", low=0)
    entropy_coef: float = option(0.002, "weight of the policy's entropy", low=0)
    max_grad_norm: float | None = option(0.5, "clip the norm of the gradient; null does not", above=0)
    init_std: float = option(1.0, "deviation of continuous actions at first", above=0)
    desired_kl: float | None = option(
        None,
        "where an update changes the policy by more than this (approx_kl), the next take smaller steps; no epoch is cut short; null: never",
        above=0,
    )
    parts: int | None = option(
        None,
        "parts of a minibatch whose gradients are found side by side and added; null: 2 on a CPU, or 1 where that would not gain",
        low=1,
    )


class PPO(Algorithm):
    """On-policy. One update of the rows that the present policy collected, and they are forgotten; one
    optimiser of everything.

    Before its first step an update goes through all rows once, without gradients, for log pi_old and V_old:
    acting need not record them. With A of `policies.returns.advantages`, brought to mean 0 and deviation 1
    over the rows that train, and R = A + V_old from before that, each step descends, over the rows of some
    columns (whole trials, one after another),

        L = -E[min(rho A, clip(rho, 1 - c, 1 + c) A)] + w_v / 2 E[(V - R)^2] - w_e E[entropy of pi],    rho = pi(a | h) / pi_old(a | h)

    Which columns, is drawn anew in each epoch. With a `window` they are cut: many more and shorter ones can
    be mixed, gradients go back no further than a window's first row, and its memory starts from what the
    policy remembered there when the update began. The gradient of a minibatch is the sum of those of its
    parts, each found in a thread of its own: a sum of the same numbers wherever and whenever they run, so it
    is as reproducible as one, and on two cores takes little more than half the time. Continuous actions are
    Gaussian, with a deviation that no row decides; what lies beyond a bound acts as the bound, and the memory
    reads what was sent. Values need rewards of a known size, `agent.normalise_reward`, or to be counted in
    one, `normalise_value`: V and R of L are then (V - m) / d and (R - m) / d, with mean m and deviation d of
    the R of late. A memory that is to infer the task adds the loss of policies/agents/task_inference.py to L.

    The surer a policy is of itself, the more it is changed by steps of the same size. With `desired_kl` K,
    step sizes are the configured ones times a pace, which after each update goes by sqrt(K / approx_kl), by a
    fifth at most, and never above 1.
    """

    Config = PPOConfig
    serves = (ActionKind.continuous, ActionKind.discrete)

    def __init__(self, config: PPOConfig, agent: Agent, *, seed: int) -> None:
        self.config = config
        self.agent = agent
        self.parameters = list(agent.parameters())
        groups = optimizer_groups(self.parameters, agent, config)
        self.optimizer = torch.optim.Adam(
            groups, lr=config.learning_rate, eps=1e-5, fused=self.parameters[0].device.type != "mps"
        )
        self._step_sizes = [group["lr"] for group in self.optimizer.param_groups]
        self.generator = torch.Generator().manual_seed(seed)
        self.scale = ValueScale() if config.normalise_value else None
        self._gains = self.parameters[0].device.type == "cpu" and all(
            part.in_long_calls for part in agent.modules() if isinstance(part, Memory)
        )

    @classmethod
    def needs(cls, config: PPOConfig, arch: Arch) -> Needs:
        """All trials of a wave, once."""
        return Needs(on_policy=True, sample=Sample.trials, batch_size=0)

    @classmethod
    def make_agent(cls, config: PPOConfig, spec: AgentSpec) -> Agent:
        """An agent whose critic estimates V."""
        cls.check(config, spec)

        def policy(sizes: HeadSizes, actions: Actions) -> nn.Module:
            if actions.kind is ActionKind.continuous:
                return GaussianHead(sizes, config.init_std)
            return PolicyHead(sizes, actions, last_gain=0.01)

        encoders = Encoders.separate if spec.config.arch is Arch.Memory_Markov else Encoders.shared
        return Agent(
            spec, ValueHead, policy, extras=cls.needs(config, spec.config.arch).extras, encoders=encoders
        )

    @classmethod
    def problems(cls, config: PPOConfig, agent: AgentConfig) -> Iterator[str]:
        """The checks of every algorithm, and one about windows."""
        yield from super().problems(config, agent)
        if config.window == 1 and agent.task_inference.weight:
            yield "agent.task_inference predicts the steps between rows, and a window of algorithm.window=1 has one row: use at least 2."

    @classmethod
    def problems_of_memory(
        cls, config: PPOConfig, agent: AgentConfig, memory: type[Memory], name: str
    ) -> Iterator[str]:
        """Windows start from a state."""
        if config.window and not memory.stores_state and agent.arch is not Arch.Markov:
            yield f"memory={name} has no state from which windows could start, for it reads whole trials: use algorithm.window=0, which takes them."

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """All epochs over these rows."""
        sums: dict[str, Tensor] = {}
        steps = 0
        with ThreadPoolExecutor() as threads:
            batch = self._with_targets(self.agent.normalise(batch), threads)
            for _ in range(self.config.epochs):
                for columns in self._minibatches(batch.shape[1]):
                    _add(sums, self._step(batch, columns, threads))
                    steps += 1
        target, value = (batch.extras[name][batch.trains] for name in ("target", "value"))
        explained = 1.0 - (target - value).var(correction=0) / target.var(correction=0).clamp(min=1e-8)
        metrics = {name: total / steps for name, total in sums.items()}
        if self.config.desired_kl is not None:
            metrics["pace"] = self._adapt_step_size(metrics["approx_kl"], self.config.desired_kl)
        return metrics | {
            "explained_variance": explained,
            "value": value.mean() if self.scale is None else self.scale.returns(value.mean()),
        }

    def _adapt_step_size(self, kl: Tensor, target: float) -> Tensor:
        """The pace from now on; it is kept in the optimiser's step sizes, and so in its state."""
        groups = self.optimizer.param_groups
        change = min(max(sqrt(target / max(kl.item(), 1e-12)), 1 / 1.2), 1.2)
        pace = min(1.0, groups[0]["lr"] / self._step_sizes[0] * change)
        for group, step_size in zip(groups, self._step_sizes, strict=True):
            group["lr"] = step_size * pace
        return kl.new_tensor(pace)  # where all metrics are

    @torch.no_grad()
    def _with_targets(self, batch: Batch, threads: Executor) -> Batch:
        """The same rows, cut into windows if they are to be, with what the present policy and values say of
        them.
        """
        config, trains = self.config, batch.trains
        parts = self._split(torch.arange(batch.shape[1], device=trains.device), batch.shape[0])
        log_prob, value = said = batch.reward.new_zeros(2, *batch.shape)
        states = _States(-(-batch.shape[0] // (config.window or batch.shape[0])), batch.shape[1])
        for columns, (found, remembered) in zip(
            parts,
            _side_by_side(self._old_outputs, [batch.columns(part) for part in parts], threads),
            strict=True,
        ):
            said[:, : found.shape[1], columns] = found
            if config.window:
                states.put(columns, remembered)
        if self.scale is not None:
            value = self.scale.returns(value)
        whole_trial = config.return_horizon is ReturnHorizon.trial
        advantage = advantages(
            batch,
            value,
            discount=config.discount,
            gae_lambda=config.gae_lambda,
            whole_trial=whole_trial,
            timeout_bootstrap=config.timeout_bootstrap,
        )
        deviation, mean = torch.std_mean(advantage[trains], correction=0)
        normal = torch.where(trains, (advantage - mean) / (deviation + 1e-8), 0.0)
        target = advantage + value
        if self.scale is not None:
            self.scale.learn(target[trains])
            value, target = self.scale.counts(value), self.scale.counts(target)
        batch = replace(
            batch, extras={"log_prob": log_prob, "value": value, "target": target, "advantage": normal}
        )
        if not config.window:
            return batch
        batch = replace(batch.side_by_side(config.window), state=states.of(0), critic_state=states.of(1))
        return batch.columns(batch.trains.any(0).nonzero().squeeze(1))

    @torch.no_grad()
    def _old_outputs(self, batch: Batch) -> tuple[Tensor, list[tuple[State, State]]]:
        """[2, T, B] log-probabilities of what was done, and values; and what actor and critic remember before
        each window.
        """
        rows, said, before = self.config.window or batch.shape[0], list[Tensor](), list[tuple[State, State]]()
        state = tuple(
            network.branch.initial_state(batch.shape[1]) for network in (self.agent.actor, self.agent.critic)
        )
        for start in range(0, batch.shape[0], rows):
            before.append((state[0], state[1]))
            window = replace(batch.rows(start, start + rows), state=state[0], critic_state=state[1])
            outputs = self.agent.unroll(window)
            state = outputs.states
            said.append(
                torch.stack([outputs.policy.log_prob(window.action), self.agent.critic.head(outputs.critic)])
            )
        return torch.cat(said, 1), before

    def _minibatches(self, columns: int) -> tuple[Tensor, ...]:
        """Numbers of columns, each once."""
        order = torch.randperm(columns, generator=self.generator).to(self.parameters[0].device)
        return order.tensor_split(min(self.config.minibatches, columns))

    def _split(self, columns: Tensor, rows: int) -> tuple[Tensor, ...]:
        """The parts of these columns of so many rows; a function of the config and of these numbers, not of
        the machine.
        """
        parts = self.config.parts or (2 if self._gains and rows * len(columns) >= 2 * FEWEST_ROWS else 1)
        return columns.tensor_split(min(parts, len(columns)))

    def _step(self, batch: Batch, columns: Tensor, threads: Executor) -> dict[str, Tensor]:
        """One step of the optimiser on these columns."""
        total = batch.trains[:, columns].sum()
        parts = [
            (part, self.agent.draw_inference_seed(self.generator))
            for part in self._split(columns, batch.shape[0])
        ]

        def differentiate(part: tuple[Tensor, int]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
            loss, metrics = self._loss(batch.columns(part[0]), total, part[1])
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
            return gradients, {name: value.detach() for name, value in metrics.items()}

        metrics: dict[str, Tensor] = {}
        found = _side_by_side(differentiate, parts, threads)
        for parameter, *gradients in zip(
            self.parameters, *(gradients for gradients, _ in found), strict=True
        ):
            # Contiguous, as the parameter is: a fused optimiser goes by memory, not by strides, and would mix
            # up what is transposed.
            parameter.grad = torch.stack(gradients).sum(0)
        for _, said in found:
            _add(metrics, said)
        metrics["grad_norm"] = norm = nn.utils.get_total_norm(
            [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        )
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.config.max_grad_norm, norm)
        self.optimizer.step()
        return metrics

    def _loss(self, batch: Batch, total: Tensor, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
        """The part of these rows in a mean over `total` rows that train."""
        config, old, weight = self.config, batch.extras, batch.trains / total

        def mean(values: Tensor) -> Tensor:
            return (values * weight).sum()

        outputs = self.agent.unroll(batch)
        policy: Any = outputs.policy  # a Gaussian or a Categorical, which both have an entropy
        value = self.agent.critic.head(outputs.critic)
        log_ratio = torch.where(batch.trains, policy.log_prob(batch.action) - old["log_prob"], 0.0)
        ratio = log_ratio.exp()
        held = ratio.clamp(1 - config.clip, 1 + config.clip)
        gain = mean(torch.minimum(ratio * old["advantage"], held * old["advantage"]))
        error = (value - old["target"]).square()
        if config.clip_value is not None:
            near = old["value"] + (value - old["value"]).clamp(-config.clip_value, config.clip_value)
            error = torch.maximum(error, (near - old["target"]).square())
        value_loss = 0.5 * mean(error)
        entropy = mean(policy.entropy().expand(batch.shape))
        with torch.no_grad():
            # kl(pi_old || pi) as E[rho - 1 - log rho], of which no term is negative (Schulman 2020)
            changes = {
                "approx_kl": mean(ratio - 1 - log_ratio),
                "clip_fraction": mean((ratio != held).float()),
            }
        loss = config.value_coef * value_loss - gain - config.entropy_coef * entropy
        inferred, parts = self.agent.inference_losses(batch, seed, actor=outputs.actor, critic=outputs.critic)
        loss = sum((weight.sum() * one for one in inferred), loss)
        parts = {name: weight.sum() * value for name, value in parts.items()}
        return loss, {"policy_loss": -gain, "value_loss": value_loss, "entropy": entropy, **changes, **parts}

    def state_dict(self) -> dict[str, Any]:
        """Parameters, optimiser, and the stream that draws the minibatches."""
        state = {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }
        return state if self.scale is None else state | {"scale": vars(self.scale).copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        if self.scale is not None:
            vars(self.scale).update(state["scale"])


class ValueScale:
    """The units that a value head counts in: deviations of late returns from their mean (as in MAPPO, Yu et
    al. 2022); an update counts a tenth.
    """

    KEPT = 0.9

    def __init__(self) -> None:
        self.weight, self.mean, self.square = 0.0, 0.0, 1.0

    @property
    def deviation(self) -> float:
        """Of returns; 1 before there are any, and never 0."""
        return sqrt(max(self.square - self.mean**2, 1e-8))

    def learn(self, returns: Tensor) -> None:
        """[n] the returns of one update."""
        returns = returns.cpu().double()  # not every device has it
        self.weight = self.KEPT * self.weight + 1.0 - self.KEPT
        part = (1.0 - self.KEPT) / self.weight
        self.mean += part * (float(returns.mean()) - self.mean)
        self.square += part * (float(returns.square().mean()) - self.square)

    def returns(self, counts: Tensor) -> Tensor:
        """What the head's counts are worth."""
        return counts * self.deviation + self.mean

    def counts(self, returns: Tensor) -> Tensor:
        """The inverse."""
        return (returns - self.mean) / self.deviation


class _States:
    """What actor and critic remember before each of `windows` windows of `columns` columns, as batches of
    windows have it.
    """

    def __init__(self, windows: int, columns: int) -> None:
        self._shape = windows, columns
        self._leaves: list[dict[str, Tensor]] = [{}, {}]

    def put(self, columns: Tensor, before: Sequence[tuple[State, State]]) -> None:
        """Those of some columns; of windows in which these have no rows, there are none."""
        for window, states in enumerate(before):
            for leaves, state in zip(self._leaves, states, strict=True):
                for name, leaf in state.items():
                    leaves.setdefault(name, leaf.new_zeros(*self._shape, *leaf.shape[1:]))[
                        window, columns
                    ] = leaf

    def of(self, which: int) -> State:
        """[windows x columns, ...]."""
        return {name: leaf.flatten(0, 1) for name, leaf in self._leaves[which].items()}


def _side_by_side(function: Callable[[S], T], items: Sequence[S], threads: Executor) -> list[T]:
    """[function(item) ...], the first in this thread."""
    others = [threads.submit(function, item) for item in items[1:]]
    return [function(items[0]), *(other.result() for other in others)]


def _add(sums: dict[str, Tensor], more: dict[str, Tensor]) -> None:
    for name, value in more.items():
        sums[name] = sums[name] + value if name in sums else value

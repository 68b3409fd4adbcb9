"""PPO: clipped policy gradients (Schulman et al. 2017, arXiv:1707.06347) on whole trials.

With a memory this is RL^2 (Duan et al. 2016, arXiv:1611.02779). With rho = pi(a | h) / pi_old(a | h),
advantages A by GAE, brought to mean 0 and deviation 1 over the rows that train, and R = A + V_old from before
that normalisation, each gradient step descends

    L = -E[min(rho A, clip(rho, 1 - c, 1 + c) A)] + w_v / 2 E[(V - R)^2] - w_e E[entropy of pi]

over the rows of some columns of the batch (whole trials, one after another), drawn anew in each epoch. One
optimiser owns all parameters.

Without a memory (agent=Markov) every row is a column: minibatches are drawn from all rows. With a memory and
a `window` the columns are cut: more and shorter columns can be mixed, gradients go back no further than
the first row of a window, and its memory starts from the state that the policy had there when the update
began.

The gradient of a minibatch is the sum over its parts, each found in a thread of its own: the same bits
wherever and whenever the threads run.

Continuous actions are Gaussian, with a deviation that does not depend on the row. They are not squashed: the
environment clips them, and the memory reads the unclipped action.

Values need rewards of a known size: set `agent.normalise_reward`, or `normalise_value`, with which V and R of
L are (V - m) / d and (R - m) / d, for the mean m and the deviation d of recent R.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from buffers.base import Batch, Needs, Sample
from policies.agents.actions import ActionKind, Actions
from policies.agents.agent import Agent
from policies.agents.base import WITH_MEMORY, AgentConfig, AgentSpec, Arch, Encoders
from policies.agents.heads import GaussianHead, HeadSizes, PolicyHead, ValueHead
from policies.algorithms.base import (
    Algorithm,
    AlgorithmConfig,
    Passes,
    ReturnHorizon,
    add_metrics,
    optimizer_groups,
)
from policies.algorithms.minibatches import (
    WindowStates,
    cut_into_windows,
    gains_from_parts,
    outputs_before_update,
    set_clipped,
    shuffled_minibatches,
    split_columns,
    sum_gradients,
)
from policies.algorithms.step_sizes import StepSizes
from policies.algorithms.value_scale import ValueScale
from policies.memory.base import Memory
from policies.returns import advantages
from utils.options import option


@dataclass
class PPOConfig(AlgorithmConfig):
    """Options of PPO.

    `desired_kl` is that of rsl_rl: it scales step sizes and ends no epoch, as the `target_kl` of others does.
    `clip_value` is in the units in which the value head predicts. With `parts=null` a minibatch has two parts
    on a CPU, and one where two would gain nothing.
    """

    discount: float = option(0.97, "gamma, per env step", low=0, high=1)
    learning_rate: float = option(7e-4, "step size of the optimiser", above=0)
    # Returns and advantages.
    gae_lambda: float = option(
        0.9, "lambda of GAE: 0 uses the next row's value alone, 1 all rewards to the end", low=0, high=1
    )
    # How often, and in which pieces, rows are learned from.
    epochs: int = option(3, "passes over the rows of an iteration", low=1)
    minibatches: int = option(
        4, "gradient steps in an epoch, over rows, windows or (window=0) whole columns", low=1
    )
    window: int = option(
        0, "cut columns into windows of so many rows; 0 leaves them whole", low=0, only_if=WITH_MEMORY
    )
    # The loss.
    clip: float = option(0.2, "the gradient stops where pi / pi_old is further from 1 than this", above=0)
    clip_value: float | None = option(
        None, "how far a value may move from the old one before it is clipped; null: no limit", above=0
    )
    normalise_value: bool = option(False, "predict values in deviations of recent returns from their mean")
    value_coef: float = option(0.5, "weight of the value's loss beside the policy's", low=0)
    entropy_coef: float = option(0.002, "weight of the policy's entropy", low=0)
    max_grad_norm: float | None = option(0.5, "clip the norm of the gradient; null does not", above=0)
    init_std: float = option(1.0, "standard deviation of continuous actions at the start", above=0)
    min_std: float = option(
        0.0, "the least standard deviation of continuous actions, for the whole of the run", low=0
    )
    # The size of steps, and the threads that find them.
    desired_kl: float | None = option(
        None, "scale step sizes so that approx_kl stays near this; null: they are constant", above=0
    )
    parts: int | None = option(
        None, "parts of a minibatch that threads differentiate; null: as many as gain", low=1
    )


class PPO(Algorithm):
    """On-policy: one update of the rows that the present policy collected, which are then forgotten."""

    Config = PPOConfig
    serves = (ActionKind.continuous, ActionKind.discrete, ActionKind.multi_discrete)
    predicts_values = True

    def __init__(self, config: PPOConfig, agent: Agent, *, seed: int) -> None:
        self.config = config
        self.agent = agent
        self.parameters = list(agent.parameters())
        self.device = self.parameters[0].device
        # eps = 1e-5 in place of Adam's 1e-8, as in the first PPO codes (baselines).
        self.optimizer = torch.optim.Adam(
            optimizer_groups(self.parameters, agent, config),
            lr=config.learning_rate,
            eps=1e-5,
            fused=self.device.type != "mps",
        )
        self.step_sizes = (StepSizes(self.optimizer),)
        self.generator = torch.Generator().manual_seed(seed)
        self.value_scale = ValueScale() if config.normalise_value else None
        self._gains_from_parts = gains_from_parts(agent)
        # Without a memory no row needs another one: each is a column of its own, and all rows can be mixed.
        self._mixes_rows = agent.arch is Arch.Markov
        self._window = 0 if self._mixes_rows else config.window

    @classmethod
    def needs(cls, config: PPOConfig, arch: Arch) -> Needs:
        """All trials of a wave, once."""
        return Needs(on_policy=True, sample=Sample.trials, batch_size=0)

    @classmethod
    def passes(cls, config: PPOConfig, arch: Arch, columns: int, rows: int) -> Passes:
        """Epochs, and the minibatches that can be made of the rows, windows or columns that are mixed."""
        mixed = columns
        if arch is Arch.Markov:
            mixed = columns * rows
        elif config.window:
            mixed = columns * -(-rows // config.window)
        return Passes(config.epochs, min(config.minibatches, mixed), config.minibatches)

    @classmethod
    def make_agent(cls, config: PPOConfig, spec: AgentSpec) -> Agent:
        """An agent whose critic estimates V."""
        cls.check(config, spec)

        # The last layer of the policy starts a hundred times smaller than the others: all actions are then
        # about as likely at first, whatever the row (Andrychowicz et al. 2021, arXiv:2006.05990).
        def policy(sizes: HeadSizes, actions: Actions) -> nn.Module:
            if actions.kind is ActionKind.continuous:
                return GaussianHead(sizes, config.init_std)
            return PolicyHead(sizes, actions, last_gain=0.01)

        # One memory for actor and critic saves time; a critic that remembers alone has nothing to share.
        encoders = Encoders.separate if spec.config.arch is Arch.Memory_Markov else Encoders.shared
        extras = cls.needs(config, spec.config.arch).extras
        return Agent(spec, ValueHead, policy, extras=extras, encoders=encoders)

    @classmethod
    def problems(cls, config: PPOConfig, agent: AgentConfig) -> Iterator[str]:
        """One sentence for each option that cannot work with the agent's options."""
        if config.window == 1 and agent.task_inference.weight:
            yield (
                "agent.task_inference predicts the steps between rows, and a window of algorithm.window=1 "
                "has one row: use at least 2."
            )
        if config.min_std > config.init_std:
            yield (
                f"algorithm.min_std={config.min_std} is more than algorithm.init_std={config.init_std}, "
                "with which actions start: lower it."
            )

    @classmethod
    def problems_of_memory(
        cls, config: PPOConfig, agent: AgentConfig, memory: type[Memory], name: str
    ) -> Iterator[str]:
        """Windows start from a stored state, which not every memory has."""
        if config.window and not memory.stores_state and agent.arch is not Arch.Markov:
            yield (
                f"memory={name} has no state from which windows could start, for it reads whole trials: "
                "use algorithm.window=0, which takes them."
            )

    # -- one update ------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """All epochs over the rows of one iteration."""
        config, sums, steps = self.config, dict[str, Tensor](), 0

        # 1. Before the first step: log pi_old, V_old, advantages and value targets of all rows.
        batch = self._with_targets(self.agent.normalise(batch))

        # 2. Several epochs; each goes through all columns once, in minibatches that are drawn anew.
        for _ in range(config.epochs):
            for columns in shuffled_minibatches(
                batch.shape[1], config.minibatches, self.generator, self.device
            ):
                add_metrics(sums, self._step(batch, columns))
                steps += 1
        metrics = {name: total / steps for name, total in sums.items()}

        # 3. Smaller steps from now on if the policy has changed too much, larger ones if too little.
        if config.desired_kl is not None:
            self.step_sizes[0].follow(metrics["approx_kl"].item(), config.desired_kl)
            metrics["learning_rate_scale"] = sums["approx_kl"].new_tensor(self.step_sizes[0].pace)

        return metrics | _value_metrics(batch, self.value_scale)

    @torch.no_grad()
    def surprise(self, batch: Batch) -> Tensor:
        """[B] the mean of |GAE| over the rows of each column that train."""
        batch = self.agent.normalise(batch)
        _, advantage = values_and_gae(self.config, batch, self._outputs(batch)[1], self.value_scale)
        return advantage.abs().sum(0) / batch.trains.sum(0).clamp(min=1)

    @torch.no_grad()
    def _with_targets(self, batch: Batch) -> Batch:
        """The same rows with what the losses need of the policy and the values before the update."""
        trains = batch.trains
        log_prob, said, states = self._outputs(batch)
        value, advantage = values_and_gae(self.config, batch, said, self.value_scale)
        target = advantage + value

        # Advantages are normalised once, over all rows that train; the field does so in each minibatch.
        deviation, mean = torch.std_mean(advantage[trains], correction=0)
        normalised = torch.where(trains, (advantage - mean) / (deviation + 1e-8), 0.0)

        # The units of values follow the new targets first; then both are converted to these units.
        if self.value_scale is not None:
            self.value_scale.update(target[trains])
            value, target = self.value_scale.from_returns(value), self.value_scale.from_returns(target)

        # A clip holds V near what the head has said: converted to the new units that would be elsewhere, and
        # already the first step would start outside of the clip.
        extras = {"log_prob": log_prob, "value": said, "target": target, "advantage": normalised}
        extras["error"] = target - value
        batch = replace(batch, extras=extras)
        if self._mixes_rows or self._window:
            batch = cut_into_windows(batch, self._window or 1, states)
        return batch

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor, WindowStates]:
        """Log pi_old and what the critic says, by one pass over all rows, so acting need not record them."""
        parts = self._split(torch.arange(batch.shape[1], device=self.device), batch.shape[0])
        return outputs_before_update(self.agent, batch, parts, self._window)

    def _step(self, batch: Batch, columns: Tensor) -> dict[str, Tensor]:
        """One gradient step on a minibatch, which is these columns."""
        # Every part divides by the rows that train in the whole minibatch, so the sum over parts is its mean.
        total = batch.trains[:, columns].sum()

        # Seeds are drawn here, in the order of the parts; threads draw nothing from the shared generator.
        parts = self._split(columns, batch.shape[0])
        seeded = [(part, self.agent.draw_inference_seed(self.generator)) for part in parts]
        gradients, metrics = sum_gradients(
            lambda part: self._losses(batch.columns(part[0]), total, part[1]), seeded, self.parameters
        )

        # Each loss has a clip of its own: a large gradient of the task inference must not take the room from
        # the policy's.
        norms = set_clipped(self.parameters, gradients, self.config.max_grad_norm)
        metrics |= dict(zip(("grad_norm", "inference_grad_norm"), norms, strict=False))
        self.optimizer.step()

        if isinstance(self.agent.actor.head, GaussianHead):
            self.agent.actor.head.keep_above(self.config.min_std)
        return metrics

    def _losses(self, batch: Batch, total: Tensor, seed: int = 0) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Shares in the mean losses over `total` rows: policy and values, then any inference; metrics."""
        config, old, weight = self.config, batch.extras, batch.trains / total

        def mean(values: Tensor) -> Tensor:
            return (values * weight).sum()

        outputs = self.agent.unroll(batch)
        policy: Any = outputs.policy
        value = self.agent.critic.head(outputs.critic)

        # Policy: min(rho A, clip(rho, 1 - c, 1 + c) A), equation 7 of the paper. Log-ratios of rows that do
        # not train are set to 0 before the exponential: an infinite rho times a weight of 0 would be NaN.
        log_ratio = torch.where(batch.trains, policy.log_prob(batch.action) - old["log_prob"], 0.0)
        ratio = log_ratio.exp()
        clipped_ratio = ratio.clamp(1 - config.clip, 1 + config.clip)
        surrogate = mean(torch.minimum(ratio * old["advantage"], clipped_ratio * old["advantage"]))

        # Values: (V - R)^2; where clipped, the larger of that and the error of a V held near V_old (not in
        # the paper, but in its code).
        error = (value - old["target"]).square()
        if config.clip_value is not None:
            change = (value - old["value"]).clamp(-config.clip_value, config.clip_value)
            error = torch.maximum(error, (old["value"] + change - old["target"]).square())
        value_loss = 0.5 * mean(error)

        # The entropy of a Gaussian depends on no row, hence the expand.
        entropy = mean(policy.entropy().expand(batch.shape))

        # How much the policy has changed: KL(pi_old || pi) by the estimator k3 = rho - 1 - log rho, which has
        # no bias and no negative term (Schulman 2020, joschu.net/blog/kl-approx.html).
        with torch.no_grad():
            approx_kl = mean(ratio - 1 - log_ratio)
            clip_fraction = mean((ratio != clipped_ratio).float())

        losses = [config.value_coef * value_loss - surrogate - config.entropy_coef * entropy]

        metrics = {"policy_loss": -surrogate, "value_loss": value_loss, "entropy": entropy}
        metrics |= {"approx_kl": approx_kl, "clip_fraction": clip_fraction}

        # A memory that is to infer the task has losses of its own (policies/agents/task_inference.py). They
        # are means over this part, so they count by its share of the rows.
        share, features = weight.sum(), {"actor": outputs.actor, "critic": outputs.critic}
        inference_losses, inference_metrics = self.agent.inference_losses(batch, seed, **features)
        if inference_losses:
            losses.append(share * sum(inference_losses[1:], inference_losses[0]))
        metrics |= {name: share * value for name, value in inference_metrics.items()}
        return losses, metrics

    def _split(self, columns: Tensor, rows: int) -> tuple[Tensor, ...]:
        """Cut columns of so many rows into the parts that threads work on."""
        return split_columns(columns, rows, self.config.parts, self._gains_from_parts)

    # -- what continues in another process -------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Parameters, the optimiser and its pace, the stream of the minibatches, and the units of values."""
        state = {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "pace": self.step_sizes[0].pace,
        }
        if self.value_scale is not None:
            state["scale"] = vars(self.value_scale).copy()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        self.step_sizes[0].pace = state["pace"]
        if self.value_scale is not None:
            vars(self.value_scale).update(state["scale"])


def values_and_gae(
    config: PPOConfig, batch: Batch, said: Tensor, scale: ValueScale | None
) -> tuple[Tensor, Tensor]:
    """[T, B] V_old, of which the critic said `said`, and GAE (Schulman et al. 2016).

    Their sum is the target of the values: R = A + V_old, which is TD(lambda).
    """
    value = said if scale is None else scale.to_returns(said)
    advantage = advantages(
        batch,
        value,
        discount=config.discount,
        gae_lambda=config.gae_lambda,
        whole_trial=config.return_horizon is ReturnHorizon.trial,
        timeout_bootstrap=config.timeout_bootstrap,
    )
    return value, advantage


def _value_metrics(batch: Batch, scale: ValueScale | None) -> dict[str, Tensor]:
    """What the values were before the update, and what part of the variance of R they explained."""
    target, error = (batch.extras[name][batch.trains] for name in ("target", "error"))
    # 1: all of it, 0: none.
    unexplained = error.var(correction=0) / target.var(correction=0).clamp(min=1e-8)
    value = (target - error).mean()
    if scale is not None:
        value = scale.to_returns(value)
    return {"explained_variance": 1.0 - unexplained, "value": value}

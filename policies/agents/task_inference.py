"""Task inference (VariBAD): a belief over the task, and decoders that predict the trial from it.

The memory's output at row t of a trial is read, by one layer, as a Gaussian belief over a latent task m,

    q_t(m) = N(mean_t, diag(deviation_t^2)),    q_{-1} = N(0, 1) before the trial

and the belief has to explain the whole trial, the steps still to come included (Zintgraf et al. 2020,
arXiv:1910.08348):

    ELBO_t = E_{m ~ q_t}[ sum_s log p(r_{s+1} | m, x_s, a_s, x_{s+1}) + log p(x_{s+1} | m, x_s, a_s) ]
             - w_kl KL(q_t || q_{t-1})

over the steps s of the trial that contains row t. The second term is there where transitions are decoded
too. Decoders are networks with a squared error, log p(r | ...) = -(r - prediction)^2 up to a constant;
that of an observation is the mean over its numbers. From an episode's end to the start of the next leads
no step, so nothing predicts that start.

An ELBO is divided by the number of steps of its trial. What is best for a trial remains the same, and the
loss, the mean of -ELBO_t / steps over rows that train, is as large for long trials as for short ones. So
it can be weighed beside the losses of actor and critic, which are means over rows. Both sums are
estimated without bias: by `rows` rows for each column of the batch, drawn from all that train, and for
each of them by `steps` steps of its trial. One m is drawn for each row. In a window of a trial the steps
are those of the window; its first row, unless it starts the trial, has no belief before it and is not
among the rows.

Heads read the memory's output, which this loss only shapes; or, as published, the belief's mean and
log-variance in its place, and then no gradient of actor or critic reaches the memory.

Rewards and observations are those that the networks read, so they are normalised where
`agent.normalise_reward` and `agent.normalise_obs` say so.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from buffers.base import Batch
from envs.base import ObsSpace
from policies.agents.actions import Actions
from policies.agents.base import AgentConfig, Decodes, Features, HeadsRead, TaskInferenceConfig, select_rows
from policies.agents.encoders import readable_parts
from policies.agents.normalisation import farthest_reward
from policies.nn.mlp import MLP


class TaskInference(nn.Module):
    """The belief over the task of a network with a memory, and the loss that trains it."""

    def __init__(
        self,
        config: TaskInferenceConfig,
        memory: int,
        obs: int,
        actions: Actions,
        farthest_reward: float = math.inf,
    ) -> None:
        super().__init__()
        self.config = config
        self._farthest_reward = farthest_reward
        self._actions = actions
        self._heads_read_belief = config.heads_read is HeadsRead.belief
        # Numbers that heads read.
        self.out_dim = 2 * config.latent if self._heads_read_belief else memory
        # The belief, and decoders of p(r | m, x, a, x') and of p(x' | m, x, a).
        self.belief = nn.Linear(memory, 2 * config.latent)
        self.reward = MLP(config.latent + obs + actions.dim + obs, config.hidden, 1)
        self.transition: MLP | None = None
        if config.decode is Decodes.reward_and_transition:
            self.transition = MLP(config.latent + obs + actions.dim, config.hidden, obs)

    @classmethod
    def of(cls, config: AgentConfig, memory: int, obs: int, actions: Actions) -> TaskInference | None:
        """None where it is left out, or where there is no memory to infer from."""
        if not (config.task_inference.weight and memory):
            return None
        return cls(config.task_inference, memory, obs, actions, farthest_reward(config))

    def context(self, memory: Tensor) -> Tensor:
        """[..., out_dim] what heads read: the memory's output, or mean and log-variance of the belief.

        No gradient goes through the belief, so heads do not train a memory whose belief they read.
        """
        return self.belief(memory).detach() if self._heads_read_belief else memory

    def loss(self, batch: Batch, features: Features, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        """(weighted loss, its parts) for a normalised batch; all draws follow from the seed."""
        assert features.memory is not None
        config, columns = self.config, batch.shape[1]
        draws = torch.Generator(batch.reward.device).manual_seed(seed)
        # The rows t whose ELBO is estimated, and for each the steps s of its trial.
        rows = self._draw_rows(batch, draws)
        arrivals, drawn, steps = self._draw_steps(batch, rows, draws)
        # q_t, and q_{t-1}, which is N(0, 1), so zeros, at the start of a trial
        mean, log_var = self.belief(select_rows(features.memory, rows)).chunk(2, -1)
        first = select_rows(batch.trial_start, rows)[:, None]
        rows_before = (rows - columns).clamp(min=0)
        before = self.belief(select_rows(features.memory, rows_before)).masked_fill(first, 0.0)
        # m ~ q_t, reparametrised
        noise = torch.randn(mean.shape, generator=draws, device=mean.device, dtype=mean.dtype)
        latent = mean + (0.5 * log_var).exp() * noise
        # ELBO_t / steps: the mean log-likelihood of the drawn steps, and the divergence
        errors = self._errors(batch, features.obs, latent, arrivals)
        parts = {name: ((error * drawn).sum(1) / drawn.sum(1).clamp(min=1)) for name, error in errors.items()}
        divergence = kl_divergence(mean, log_var, *before.chunk(2, -1))
        elbo = -sum(parts.values(), config.kl_weight * divergence / steps)
        # Means over rows; a window may have no row to train.
        metrics = {"elbo": elbo, **parts, "belief_kl": divergence}
        means = {name: value.sum() / max(len(rows), 1) for name, value in metrics.items()}
        return -config.weight * means["elbo"], {name: value.detach() for name, value in means.items()}

    def _draw_rows(self, batch: Batch, draws: torch.Generator) -> Tensor:
        """[N] rows whose beliefs are trained, by flat number, none twice."""
        trains = batch.trains.clone()
        # Row 0 of a window has no belief before it, unless it starts the trial.
        trains[0] &= batch.trial_start[0]
        rows = trains.flatten().nonzero().squeeze(1)
        if self.config.rows is None:
            return rows
        order = torch.randperm(len(rows), generator=draws, device=rows.device)
        return rows[order[: self.config.rows * batch.shape[1]]]

    def _draw_steps(
        self, batch: Batch, rows: Tensor, draws: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """([N, S] rows where steps of each row's trial arrive, [N, S] which of them count, [N] their number).

        Rows have flat numbers, none twice. A trial of fewer than S steps is filled up with other rows.
        """
        num_rows, columns = batch.shape
        # A step arrives at every row but the starts of episodes; that into row 0 began before the window.
        arrived = batch.valid & ~batch.episode_start
        arrived[0] = False
        # Of these, the steps of the same trial: in the same column, between the same two trial starts.
        column, trial = rows % columns, batch.trial_start.cumsum(0)
        of_trial = arrived.T[column] & (trial.T[column] == select_rows(trial, rows)[:, None])
        # The S largest of random numbers are a draw without repetition; -1 puts all other rows last.
        order = torch.rand(of_trial.shape, generator=draws, device=rows.device).masked_fill_(~of_trial, -1.0)
        most = num_rows if self.config.steps is None else min(self.config.steps, num_rows)
        priority, time = order.topk(most, dim=1)
        return time.clamp(min=1) * columns + column[:, None], priority >= 0, of_trial.sum(1).clamp(min=1)

    def _errors(self, batch: Batch, obs: Tensor, latent: Tensor, arrivals: Tensor) -> dict[str, Tensor]:
        """[N, S] squared errors of what each m predicts of its steps."""
        flat = arrivals.flatten()

        def at(values: Tensor, rows: Tensor) -> Tensor:
            return select_rows(values, rows).unflatten(0, arrivals.shape)

        # A step leads from x_s by a_s to x_{s+1}, the row where it arrives; beyond a bound an action acted as
        # the bound.
        action = self._actions.previous(batch).clamp(-1.0, 1.0)
        inputs = [
            latent[:, None].expand(*arrivals.shape, -1),
            at(obs, flat - batch.shape[1]),
            at(action, flat),
        ]
        next_obs = at(obs, flat)
        reward = at(batch.reward, flat).clamp(-self._farthest_reward, self._farthest_reward)
        predicted = self.reward(torch.cat([*inputs, next_obs], -1)).squeeze(-1)
        errors = {"reward_error": (predicted - reward).square()}
        if self.transition is not None:
            predicted_obs = self.transition(torch.cat(inputs, -1))
            errors["transition_error"] = (predicted_obs - next_obs).square().mean(-1)
        return errors


def kl_divergence(mean: Tensor, log_var: Tensor, other_mean: Tensor, other_log_var: Tensor) -> Tensor:
    """[...] KL(first || other) of Gaussians with independent numbers."""
    # 1/2 (log s2^2 - log s1^2 + s1^2 / s2^2 + (m1 - m2)^2 / s2^2 - 1), summed over numbers
    distance = (mean - other_mean).square() * (-other_log_var).exp()
    return 0.5 * (other_log_var - log_var + (log_var - other_log_var).exp() + distance - 1.0).sum(-1)


def check_decodable(config: TaskInferenceConfig, space: ObsSpace) -> None:
    """Refuse to decode pictures, by a `ValueError` of one sentence.

    A mean of squared differences of pixels says little about a picture.
    """
    pictures = [key for key, part in readable_parts(space).items() if len(part.shape) == 3]
    if config.weight and config.decode is Decodes.reward_and_transition and pictures:
        raise ValueError(
            "Next observations are decoded where they are vectors, and here is a picture: "
            "use agent.task_inference.decode=reward."
        )

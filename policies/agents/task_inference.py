"""Task inference: a belief over the task, and decoders that predict from it every step of the trial (VariBAD:
Zintgraf et al. 2020).

What is remembered after row t of a trial is read, by one layer, as a Gaussian belief over a latent task m,

    q_t(m) = N(mean_t, diag(deviation_t^2)),    q_{-1} = N(0, 1) before the trial

and the memory is asked to believe in what explains the whole trial, the steps still to come included:

    ELBO_t = E_{m ~ q_t}[sum_s log p(r_{s+1} | m, x_s, a_s, x_{s+1}) + log p(x_{s+1} | m, x_s, a_s)] - w_kl
    KL(q_t || q_{t-1})

over the steps s of the trial of which row t is one (arXiv:1910.08348). The second term is there where
transitions are decoded too. Decoders are networks whose error counts as a squared one, log p(r | ...) = -(r -
prediction)^2 up to a constant; that of an observation is the mean over its numbers. What leads from an
episode's end to the start of the next is no step, and is predicted by nobody.

An ELBO is divided by the number of steps of its trial. That changes nothing in what is best for the trial, and makes the loss, the mean of
-ELBO_t / steps over rows that train, as large for long trials as for short ones: it can be weighed beside the losses of actor and critic, which
are means over rows. Both sums are estimated without bias: by `rows` rows for each column of the batch, drawn from all that train, and for each of
them `steps` steps of its trial. One m is drawn for each row. In a window of a trial the steps are those of the window; its first row, unless it
starts the trial, has no belief before it and is not among the rows.

Heads go on reading the memory's features, which this loss only shapes; or, as published, the belief's mean
and log-variance in their place, and then no gradient of actor or critic reaches the memory.

Rewards and observations are those that the networks read, so normalised where `agent.normalise_reward` and
`agent.normalise_obs` say so.
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
    """What a network that remembers believes of the task, and the loss that makes it so."""

    def __init__(
        self,
        config: TaskInferenceConfig,
        features: int,
        obs: int,
        actions: Actions,
        farthest_reward: float = math.inf,
    ) -> None:
        super().__init__()
        self.config = config
        self._farthest_reward = farthest_reward
        self._actions = actions
        self._replaces = config.heads_read is HeadsRead.belief
        self.out_dim = 2 * config.latent if self._replaces else features
        """Of what heads read."""
        self.belief = nn.Linear(features, 2 * config.latent)
        self.reward = MLP(config.latent + obs + actions.dim + obs, config.hidden, 1)
        decodes_obs = config.decode is Decodes.reward_and_transition
        self.transition = MLP(config.latent + obs + actions.dim, config.hidden, obs) if decodes_obs else None

    @classmethod
    def of(cls, config: AgentConfig, features: int, obs: int, actions: Actions) -> TaskInference | None:
        """None where it is left out, or there are no features to infer from."""
        return (
            cls(config.task_inference, features, obs, actions, farthest_reward(config))
            if config.task_inference.weight and features
            else None
        )

    def context(self, memory: Tensor) -> Tensor:
        """[..., out_dim] what heads read: the memory's output, or mean and log-variance of the belief.

        No gradient goes through the belief, so heads do not train a memory whose belief they read.
        """
        return self.belief(memory).detach() if self._replaces else memory

    def loss(self, batch: Batch, seen: Features, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        """(the loss, times its weight, and its parts) for a batch that was `read`; everything that is drawn
        is a function of the seed.
        """
        assert seen.memory is not None
        config, columns = self.config, batch.shape[1]
        draws = torch.Generator(batch.reward.device).manual_seed(seed)
        rows = self._draw_rows(batch, draws)
        arrivals, drawn, steps = self._draw_steps(batch, rows, draws)
        mean, log_var = self.belief(select_rows(seen.memory, rows)).chunk(2, -1)
        first = select_rows(batch.trial_start, rows)[:, None]
        before = self.belief(select_rows(seen.memory, (rows - columns).clamp(min=0))).masked_fill(first, 0.0)
        noise = torch.randn(mean.shape, generator=draws, device=mean.device, dtype=mean.dtype)
        errors = self._errors(batch, seen.obs, mean + (0.5 * log_var).exp() * noise, arrivals)
        parts = {name: ((error * drawn).sum(1) / drawn.sum(1).clamp(min=1)) for name, error in errors.items()}
        divergence = kl_divergence(mean, log_var, *before.chunk(2, -1))
        elbo = -sum(parts.values(), config.kl_weight * divergence / steps)
        said = {"elbo": elbo, **parts, "belief_kl": divergence}
        means = {
            name: value.sum() / max(len(rows), 1) for name, value in said.items()
        }  # a window may have no such row
        return -config.weight * means["elbo"], {name: value.detach() for name, value in means.items()}

    def _draw_rows(self, batch: Batch, draws: torch.Generator) -> Tensor:
        """[N] rows whose beliefs are trained, by flat number, none twice."""
        trains = batch.trains.clone()
        trains[0] &= batch.trial_start[0]
        rows = trains.flatten().nonzero().squeeze(1)
        if self.config.rows is None:
            return rows
        return rows[
            torch.randperm(len(rows), generator=draws, device=rows.device)[
                : self.config.rows * batch.shape[1]
            ]
        ]

    def _draw_steps(
        self, batch: Batch, rows: Tensor, draws: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """([N, S] rows at which steps of the trial of each row arrived, by flat number, none twice; [N, S]
        whether there are so many; [N] how many there are in all).
        """
        num_rows, columns = batch.shape
        arrived = batch.valid & ~batch.episode_start
        arrived[0] = False
        column, trial = rows % columns, batch.trial_start.cumsum(0)
        of_trial = arrived.T[column] & (trial.T[column] == select_rows(trial, rows)[:, None])
        order = torch.rand(of_trial.shape, generator=draws, device=rows.device).masked_fill_(~of_trial, -1.0)
        most = num_rows if self.config.steps is None else min(self.config.steps, num_rows)
        place, time = order.topk(most, dim=1)
        return time.clamp(min=1) * columns + column[:, None], place >= 0, of_trial.sum(1).clamp(min=1)

    def _errors(self, batch: Batch, obs: Tensor, latent: Tensor, arrivals: Tensor) -> dict[str, Tensor]:
        """[N, S] squared errors of what each m predicts of its steps."""
        flat = arrivals.flatten()

        def at(values: Tensor, rows: Tensor) -> Tensor:
            return select_rows(values, rows).unflatten(0, arrivals.shape)

        action = self._actions.previous(batch).clamp(-1.0, 1.0)  # beyond a bound it acted as the bound
        told = [latent[:, None].expand(*arrivals.shape, -1), at(obs, flat - batch.shape[1]), at(action, flat)]
        reached = at(obs, flat)
        reward = at(batch.reward, flat).clamp(-self._farthest_reward, self._farthest_reward)
        errors = {
            "reward_error": (self.reward(torch.cat([*told, reached], -1)).squeeze(-1) - reward).square()
        }
        if self.transition is not None:
            errors["transition_error"] = (self.transition(torch.cat(told, -1)) - reached).square().mean(-1)
        return errors


def kl_divergence(mean: Tensor, log_var: Tensor, other_mean: Tensor, other_log_var: Tensor) -> Tensor:
    """[...] of Gaussians with independent numbers, the first from the other."""
    apart = (mean - other_mean).square() * (-other_log_var).exp()
    return 0.5 * (other_log_var - log_var + (log_var - other_log_var).exp() + apart - 1.0).sum(-1)


def check_decodable(config: TaskInferenceConfig, space: ObsSpace) -> None:
    """Refuse, by a `ValueError` of one sentence, to decode pictures: a mean of squared differences says
    little of them.
    """
    pictures = [key for key, part in readable_parts(space).items() if len(part.shape) == 3]
    if config.weight and config.decode is Decodes.reward_and_transition and pictures:
        raise ValueError(
            "Next observations are decoded where they are vectors, and here is a picture: use agent.task_inference.decode=reward."
        )

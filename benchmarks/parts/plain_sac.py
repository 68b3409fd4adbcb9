"""The reference of `benchmarks.update`: recurrent SAC as published, written straightforwardly, on padded
tensors.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Normal

DISCOUNT, TAU, LEARNING_RATE = 0.99, 0.005, 3e-4


@dataclass
class Padded:
    """[T, B, ...] rows: what was seen, what led to it, and what was done."""

    obs: Tensor
    prev_action: Tensor
    reward: Tensor
    action: Tensor
    done: Tensor
    mask: Tensor


def mlp(inputs: int, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between."""
    sizes = [inputs, *[hidden] * layers]
    parts = [part for a, b in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs))


class Trunk(nn.Module):
    """Embeddings of previous action, reward and observation, and a GRU over them."""

    def __init__(self, obs: int, action: int, hidden: int) -> None:
        super().__init__()
        self.of_action, self.of_reward, self.of_obs = (
            nn.Linear(action, 16),
            nn.Linear(1, 16),
            nn.Linear(obs, 32),
        )
        self.gru = nn.GRU(64, hidden)

    def forward(self, rows: Padded) -> Tensor:
        """[T, B, hidden]."""
        parts = [
            self.of_action(rows.prev_action).relu(),
            self.of_reward(rows.reward).relu(),
            self.of_obs(rows.obs).relu(),
        ]
        return self.gru(torch.cat(parts, -1))[0]


class PlainActor(nn.Module):
    """Memory, shortcut, and a tanh-Gaussian."""

    def __init__(self, obs: int, action: int, hidden: int) -> None:
        super().__init__()
        self.trunk, self.shortcut = Trunk(obs, action, hidden), nn.Linear(obs, 32)
        self.head = mlp(hidden + 32, 128, 3, 2 * action)

    def forward(self, rows: Padded) -> tuple[Tensor, Tensor]:
        """An action of every row, and its log-probability [T, B, 1]."""
        both = torch.cat([self.trunk(rows), self.shortcut(rows.obs).relu()], -1)
        mean, log_std = self.head(both).chunk(2, -1)
        normal = Normal(mean, log_std.clamp(-20, 2).exp())
        u = normal.rsample()
        action = torch.tanh(u)
        return action, (normal.log_prob(u) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1, keepdim=True)


class Critic(nn.Module):
    """Memory, shortcut of observation and action, and two values."""

    def __init__(self, obs: int, action: int, hidden: int) -> None:
        super().__init__()
        self.trunk, self.shortcut = Trunk(obs, action, hidden), nn.Linear(obs + action, 32)
        self.heads = nn.ModuleList([mlp(hidden + 32, 128, 3, 1) for _ in range(2)])

    def forward(self, rows: Padded, action: Tensor) -> tuple[Tensor, Tensor]:
        """Both values [T, B, 1]."""
        both = torch.cat([self.trunk(rows), self.shortcut(torch.cat([rows.obs, action], -1)).relu()], -1)
        return self.heads[0](both), self.heads[1](both)


class PlainSAC:
    """Five recurrent passes an update: next actions, targets, values, actions, and values of those."""

    def __init__(self, obs: int, action: int, hidden: int = 128) -> None:
        self.actor, self.critic = PlainActor(obs, action, hidden), Critic(obs, action, hidden)
        self.target = deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.optimizers = [
            torch.optim.Adam(one, lr=LEARNING_RATE)
            for one in (self.actor.parameters(), self.critic.parameters(), [self.log_alpha])
        ]
        self.target_entropy = -float(action)

    def update(self, rows: Padded) -> None:
        """Critic, actor, temperature, target."""
        count, alpha = rows.mask.sum(), self.log_alpha.exp().detach()
        with torch.no_grad():
            action, log_prob = self.actor(rows)
            value = torch.min(*self.target(rows, action)) - alpha * log_prob
            target = rows.reward[1:] + DISCOUNT * (1 - rows.done[1:]) * value[1:]
        first, second = self.critic(rows, rows.action)
        critic_loss = (
            ((first[:-1] - target) ** 2 + (second[:-1] - target) ** 2) * rows.mask[:-1]
        ).sum() / count
        self._step(1, critic_loss)
        action, log_prob = self.actor(rows)
        actor_loss = ((alpha * log_prob - torch.min(*self.critic(rows, action))) * rows.mask).sum() / count
        self._step(0, actor_loss)
        self._step(
            2, -(self.log_alpha.exp() * ((log_prob.detach() + self.target_entropy) * rows.mask).sum() / count)
        )
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.mul_(1 - TAU).add_(TAU * new)

    def _step(self, which: int, loss: Tensor) -> None:
        self.optimizers[which].zero_grad()
        loss.backward()
        self.optimizers[which].step()

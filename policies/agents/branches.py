"""Branches: the part of an actor or a critic that may have a memory; without one its output is empty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from buffers.base import Batch
from policies.agents.actions import Actions
from policies.agents.base import AgentSpec, Inputs, PolicyRows
from policies.memory.base import State, check_state
from policies.nn.dense import dense
from policies.nn.mlp import linear_parameters


class Branch(nn.Module, ABC):
    """From rows to [N, out_dim], one step at a time, or to [T, B, out_dim], over a batch.

    `obs` is the observation, encoded.
    """

    out_dim: int

    @abstractmethod
    def initial_state(self, num_slots: int) -> State:
        """The state before the first row of a trial."""

    @abstractmethod
    def step(self, rows: PolicyRows, obs: Tensor, state: State) -> tuple[Tensor, State]:
        """Read the next row of every slot."""

    @abstractmethod
    def unroll(self, batch: Batch, obs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read all rows of a batch, from `state` or the initial one; with the state after the last row."""


class MarkovBranch(Branch):
    """No memory: the heads read the current row alone."""

    out_dim = 0

    def initial_state(self, num_slots: int) -> State:
        """Nothing."""
        return {}

    def step(self, rows: PolicyRows, obs: Tensor, state: State) -> tuple[Tensor, State]:
        """[N, 0]."""
        return obs[:, :0], state

    def unroll(self, batch: Batch, obs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """[T, B, 0]."""
        return obs[..., :0], {}


class MemoryBranch(Branch):
    """A memory that reads embeddings of the previous action, the reward and the observation."""

    def __init__(
        self,
        spec: AgentSpec,
        obs_dim: int,
        actions: Actions,
        read_reward: Callable[[Inputs], Tensor],
    ) -> None:
        """`read_reward` is how the rewards of rows are read."""
        super().__init__()
        self._actions = actions
        self._read_reward = read_reward
        # The size of each input, and of its embedding; an embedding of size 0 leaves the input out.
        sizes = {
            "prev_action": (actions.dim, spec.config.action_embedding),
            "reward": (1, spec.config.reward_embedding),
            "obs": (obs_dim, spec.config.obs_embedding),
        }
        self.embeddings = nn.ModuleDict(
            {name: nn.Linear(inputs, size) for name, (inputs, size) in sizes.items() if size}
        )
        self._applied = list(zip(self.embeddings, linear_parameters(self.embeddings.values()), strict=True))
        in_dim = sum(size for _, size in sizes.values())
        if not in_dim:
            raise ValueError(
                "The memory has nothing to read: agent.action_embedding, agent.reward_embedding "
                "and agent.obs_embedding are all 0."
            )
        self.memory = spec.memory(spec.memory_config, in_dim)
        check_state(self.memory, in_dim)
        self.out_dim = self.memory.out_dim

    def initial_state(self, num_slots: int) -> State:
        """The memory's initial state."""
        return self.memory.initial_state(num_slots)

    def step(self, rows: PolicyRows, obs: Tensor, state: State) -> tuple[Tensor, State]:
        """[N, out_dim]; only a trial's start forgets."""
        # A memory reads [T, B, ...]: acting is T = 1.
        out, state = self.memory(self._embed(rows, obs)[None], state, rows.trial_start[None])
        return out[0], state

    def unroll(self, batch: Batch, obs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """[T, B, out_dim]; only a trial's start forgets."""
        start = self.initial_state(batch.shape[1]) if state is None else state
        return self.memory(self._embed(batch, obs), start, batch.trial_start)

    def _embed(self, inputs: Inputs, obs: Tensor) -> Tensor:
        reward = self._read_reward(inputs)[..., None]
        values = {"prev_action": self._actions.previous(inputs), "reward": reward, "obs": obs}
        # x = (relu(E_a a), relu(E_r r), relu(E_o o)), side by side
        return torch.cat(
            [dense(values[name], weight, bias, "relu") for name, (weight, bias) in self._applied], -1
        )

"""Agent: an actor and a critic, each a branch (what is remembered) and a head (what is made of it), in three architectures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from buffers.base import Batch
from envs.base import ActionSpace, ObsSpace
from policies.agents.base import AgentSpec, Arch, Outputs, PolicyRows
from policies.agents.branches import Branch, MarkovBranch, MemoryBranch, vector
from policies.agents.heads import HeadSizes, PolicyHead
from policies.memory.base import State


class Critic(nn.Module):
    """What the critic remembers, and the head that its algorithm gave it."""

    def __init__(self, branch: Branch, head: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.head = head


class Actor(nn.Module):
    """What the actor remembers, and its policy."""

    def __init__(self, branch: Branch, head: PolicyHead) -> None:
        super().__init__()
        self.branch = branch
        self.head = head


class Agent(nn.Module):
    """Acts on the rows of all slots, one step at a time, and unrolls whole batches: the same inputs through the same parts."""

    EXTRAS = ("log_prob",)

    def __init__(self, spec: AgentSpec, critic_head: Callable[[HeadSizes], nn.Module], extras: tuple[str, ...] = ()) -> None:
        super().__init__()
        obs_dim, action_dim = check_spaces(spec.obs_space, spec.action_space)
        unknown = set(extras) - set(self.EXTRAS)
        if unknown:
            raise ValueError(f"act() can record {', '.join(self.EXTRAS)}, not {', '.join(sorted(unknown))}.")
        self.arch = spec.config.arch
        self.extras = extras
        self.action_dim = action_dim

        def branch(remembers: bool) -> Branch:
            return MemoryBranch(spec, obs_dim, action_dim) if remembers else MarkovBranch()

        def sizes(branch: Branch) -> HeadSizes:
            return HeadSizes(branch.out_dim, obs_dim, action_dim, spec.config.shortcut_embedding, spec.config.hidden)

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            remembers = branch(self.arch is Arch.Memory)
            self.actor = Actor(remembers, PolicyHead(sizes(remembers)))
            remembers = branch(self.arch is not Arch.Markov)
            self.critic = Critic(remembers, critic_head(sizes(remembers)))
        self.to(spec.device)

    def initial_state(self, num_slots: int) -> State:
        """The acting state of N slots; an empty dict where the actor does not remember."""
        return self.actor.branch.initial_state(num_slots)

    def act(self, rows: PolicyRows, state: State, noise: Tensor, deterministic: bool = False) -> tuple[Tensor, dict[str, Tensor], State]:
        """(action [N, A], extras, state) for all N rows, always; noise [N, A] as drawn by `draw_noise`; idle rows give some action."""
        features, state = self.actor.branch.step(rows, state)
        policy = self.actor.head(features, vector(rows.obs))
        action = policy.mode() if deterministic else policy.sample(noise)
        extras = {"log_prob": policy.log_prob(action)} if "log_prob" in self.extras else {}
        return action, extras, state

    def unroll(self, batch: Batch) -> Outputs:
        """The policy and the features at every row, with gradients."""
        actor_features = self.actor.branch.unroll(batch, batch.state)
        return Outputs(self.actor.head(actor_features, vector(batch.obs)), actor_features, self.critic.branch.unroll(batch))

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """[num_rows, A] the noise of a whole trial, in one draw."""
        return rng.standard_normal((num_rows, self.action_dim), dtype=np.float32)


def check_spaces(obs: ObsSpace, action: ActionSpace) -> tuple[int, int]:
    """(observation, action) dimensions, of the spaces that the present parts can serve; a `ValueError` for others."""
    if not isinstance(obs, spaces.Box) or len(obs.shape) != 1:
        raise ValueError(f"The agent reads observations that are one vector, not {obs}: give it an encoder for them in policies/agents/branches.py.")
    if not isinstance(action, spaces.Box) or len(action.shape) != 1:
        raise ValueError(f"The agent has a policy head for a vector of continuous actions, not for {action}.")
    if not (np.all(action.low == -1) and np.all(action.high == 1)):
        raise ValueError(f"The policy's actions lie in [-1, 1], and those of this environment in {action}: scale them in its family.")
    return obs.shape[0], action.shape[0]

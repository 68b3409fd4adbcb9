"""Agent: an actor and a critic, each an encoder (what is seen), a branch (what is remembered) and a head
(what is made of both).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from buffers.base import Batch
from envs.base import ActionSpace, ObsSpace
from envs.interop.spaces import MASK_KEY
from policies.agents.actions import Actions, actions_of
from policies.agents.base import (
    NOTHING_TO_SHARE,
    AgentSpec,
    Arch,
    Encoders,
    Features,
    Outputs,
    PolicyRows,
    Precision,
)
from policies.agents.branches import Branch, MarkovBranch, MemoryBranch
from policies.agents.conditioning import HeadSizes
from policies.agents.encoders import Encoder, encoder_of, mask_of, readable_parts
from policies.agents.heads import PolicyHead
from policies.agents.normalisation import Normaliser
from policies.agents.task_inference import TaskInference, check_decodable
from policies.memory.base import State


class Network(nn.Module):
    """An actor or a critic; one that remembers may have to infer the task from it."""

    def __init__(
        self, encoder: Encoder, branch: Branch, head: nn.Module, inference: TaskInference | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.branch = branch
        self.head = head
        self.inference = inference

    def step(self, rows: PolicyRows, state: State) -> tuple[Features, State]:
        """The next row of every slot."""
        obs = self.encoder(rows.obs)
        features, state = self.branch.step(rows, obs, state)
        if self.inference is not None:
            features = self.inference.read(features)
        return Features(features, obs, mask_of(rows.obs)), state

    def unroll(self, batch: Batch, state: State | None = None) -> Features:
        """All rows of a batch, from `state` or the initial one."""
        return self.unroll_on(batch, state)[0]

    def unroll_on(self, batch: Batch, state: State | None) -> tuple[Features, State]:
        """The same, and what is remembered after the last row."""
        obs, mask = self.encoder(batch.obs), mask_of(batch.obs)
        features, state = self.branch.unroll(batch, obs, state)
        return Features(features, obs, mask) if self.inference is None else Features(
            self.inference.read(features), obs, mask, features
        ), state


class Agent(nn.Module):
    """Acts on the rows of all slots, one step at a time, and unrolls whole batches: the same inputs through
    the same parts.
    """

    EXTRAS = ("log_prob",)

    def __init__(
        self,
        spec: AgentSpec,
        critic_head: Callable[[HeadSizes], nn.Module],
        actor_head: Callable[[HeadSizes, Actions], nn.Module] = PolicyHead,
        extras: tuple[str, ...] = (),
        encoders: Encoders = Encoders.separate,
    ) -> None:
        """`encoders`: where the config leaves that to the algorithm."""
        super().__init__()
        self.actions = check_spaces(spec.obs_space, spec.action_space)
        unknown = set(extras) - set(self.EXTRAS)
        if unknown:
            raise ValueError(f"act() can record {', '.join(self.EXTRAS)}, not {', '.join(sorted(unknown))}.")
        self.arch = spec.config.arch
        self.shares = (spec.config.encoders or encoders) is Encoders.shared
        """Whether actor and critic have one encoder and one memory."""
        if self.shares and self.arch is Arch.Memory_Markov:
            raise ValueError(NOTHING_TO_SHARE)
        self.extras = extras
        obs, reward = spec.config.normalise_obs, spec.config.normalise_reward
        self.normaliser = Normaliser(spec.obs_space, obs=obs, reward=reward) if obs or reward else None
        check_decodable(spec.config.task_inference, spec.obs_space)

        def network(
            remembers: bool, head: Callable[[HeadSizes], nn.Module], like: Network | None = None
        ) -> Network:
            config, actions = spec.config, self.actions
            encoder = encoder_of(spec.obs_space, config.picture_embedding) if like is None else like.encoder
            branch = (
                like.branch
                if like
                else MemoryBranch(spec, encoder.out_dim, actions)
                if remembers
                else MarkovBranch()
            )
            inference = (
                like.inference if like else TaskInference.of(config, branch.out_dim, encoder.out_dim, actions)
            )
            features = branch.out_dim if inference is None else inference.out_dim
            shape = (
                features,
                encoder.out_dim,
                actions.dim,
                config.shortcut_embedding,
                config.hidden,
                config.activation,
            )
            sizes = HeadSizes(
                *shape,
                config.conditioning,
                config.hyper_embedding,
                bf16=config.precision is Precision.bfloat16,
            )
            return Network(encoder, branch, head(sizes), inference)

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            self.actor = network(self.arch is Arch.Memory, lambda sizes: actor_head(sizes, self.actions))
            self.critic = network(
                self.arch is not Arch.Markov, critic_head, self.actor if self.shares else None
            )
        self.to(spec.device)

    def initial_state(self, num_slots: int) -> State:
        """The acting state of N slots; an empty dict where the actor does not remember."""
        return self.actor.branch.initial_state(num_slots)

    def act(
        self, rows: PolicyRows, state: State, noise: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, dict[str, Tensor], State]:
        """(action [N, ...], extras, state) for all N rows, always; noise as drawn by `draw_noise`; idle rows
        give some action.
        """
        seen, state = self.actor.step(rows if self.normaliser is None else self.normaliser(rows), state)
        policy = self.actor.head(seen)
        action = policy.mode() if deterministic else policy.sample(noise)
        extras = {"log_prob": policy.log_prob(action)} if "log_prob" in self.extras else {}
        return action, extras, state

    def unroll(self, batch: Batch) -> Outputs:
        """The policy and what it and the critic see at every row, with gradients."""
        actor, critic = self.see(self.read(batch))
        return Outputs(self.actor.head(actor), actor, critic)

    def read(self, batch: Batch) -> Batch:
        """The rows as the networks are to read them: zeros in the padding, and normalised."""
        batch = batch.without_padding()
        return batch if self.normaliser is None else self.normaliser(batch)

    def observe(self, batch: Batch, discount: float) -> None:
        """Learn from whole trials how to normalise; nothing else does, so evaluation changes nothing."""
        if self.normaliser is not None:
            self.normaliser.observe(batch, discount)

    def see(self, batch: Batch) -> tuple[Features, Features]:
        """What actor and critic see at every row of a batch that was `read`: the same, found once, where they
        share it.
        """
        return self.see_on(batch)[0]

    def see_on(self, batch: Batch) -> tuple[tuple[Features, Features], tuple[State, State]]:
        """The same, and what both remember after the last row: the states from which the rows after them go
        on.
        """
        actor, state = self.actor.unroll_on(batch, batch.state)
        if self.shares:
            return (actor, actor), (state, {})
        critic, critic_state = self.critic.unroll_on(batch, batch.critic_state)
        return (actor, critic), (state, critic_state)

    def infer(self, batch: Batch, seed: int, **seen: Features) -> tuple[list[Tensor], dict[str, Tensor]]:
        """(losses, metrics) of task inference where what "actor" or "critic" sees is given; what they share
        infers it once, as the critic's.
        """
        losses: list[Tensor] = []
        metrics: dict[str, Tensor] = {}
        for name, network in (("actor", None if self.shares else self.actor), ("critic", self.critic)):
            if name in seen and network is not None and network.inference is not None:
                loss, said = network.inference.loss(batch, seen[name], seed)
                losses.append(loss)
                metrics |= {f"{name}_{part}": value for part, value in said.items()}
        return losses, metrics

    def draw_inference_seed(self, generator: torch.Generator) -> int:
        """What all draws of `infer` follow from, in whatever thread they are made; where nobody infers, 0,
        and nothing is drawn.
        """
        if self.actor.inference is None and self.critic.inference is None:
            return 0
        return int(torch.randint(2**62, (), generator=generator, device=generator.device))

    def owned(self) -> dict[str, list[nn.Parameter]]:
        """The parameters of actor and critic; what they share is the critic's."""
        critic = list(self.critic.parameters())
        ids = {id(parameter) for parameter in critic}
        return {
            "critic": critic,
            "actor": [parameter for parameter in self.actor.parameters() if id(parameter) not in ids],
        }

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """[num_rows, ...] the noise of a whole trial, in one draw."""
        return self.actions.draw_noise(rng, num_rows)


def check_spaces(obs: ObsSpace, action: ActionSpace) -> Actions:
    """The actions of an agent for these spaces; those that the present parts cannot serve are a `ValueError`
    of one sentence.
    """
    actions = actions_of(action)
    mask = obs.spaces.get(MASK_KEY) if isinstance(obs, spaces.Dict) else None
    readable_parts(obs)
    if mask is not None and mask.shape != (actions.dim,):
        raise ValueError(
            f"The observation {MASK_KEY!r} has the shape {mask.shape}, and {action} needs one number for each action."
        )
    return actions

"""Agent: an actor and a critic, each an encoder, a branch that may have a memory, and a head.

obs -> encoder -> [..., D] -> branch (embeddings -> memory) -> context [..., F]
                      |                                          |
                      +---------------- shortcut --------------> head -> distribution, V or Q
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

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
    Inputs,
    Outputs,
    PolicyRows,
    Precision,
)
from policies.agents.branches import Branch, MarkovBranch, MemoryBranch
from policies.agents.encoders import Encoder, encoder_of, mask_of, readable_parts
from policies.agents.heads import HeadSizes, PolicyHead
from policies.agents.normalisation import Normaliser
from policies.agents.task_inference import TaskInference, check_decodable
from policies.memory.base import State


class Network(nn.Module):
    """An actor or a critic: encoder, branch, perhaps task inference, and a head."""

    def __init__(
        self, encoder: Encoder, branch: Branch, head: nn.Module, inference: TaskInference | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.branch = branch
        self.head = head
        self.inference = inference

    def step(self, rows: PolicyRows, state: State) -> tuple[Features, State]:
        """Read the next row of every slot, and give the memory's state after it."""
        obs = self.encoder(rows.obs)
        memory, state = self.branch.step(rows, obs, state)
        return self._features(memory, obs, mask_of(rows.obs)), state

    def unroll(self, batch: Batch, state: State | None = None) -> Features:
        """Read all rows of a batch, from `state` or from the initial one."""
        return self.unroll_with_state(batch, state)[0]

    def unroll_with_state(self, batch: Batch, state: State | None) -> tuple[Features, State]:
        """Read all rows of a batch, and give the memory's state after the last one too."""
        obs = self.encoder(batch.obs)
        memory, state = self.branch.unroll(batch, obs, state)
        return self._features(memory, obs, mask_of(batch.obs)), state

    def _features(self, memory: Tensor, obs: Tensor, mask: Tensor | None) -> Features:
        if self.inference is None:
            return Features(memory, obs, mask)
        return Features(self.inference.context(memory), obs, mask, memory)


class Agent(nn.Module):
    """Acts on the rows of all slots step by step, and unrolls whole batches through the same parts."""

    # What `act` can record with each row.
    EXTRAS = ("log_prob",)

    def __init__(
        self,
        spec: AgentSpec,
        critic_head: Callable[[HeadSizes], nn.Module],
        actor_head: Callable[[HeadSizes, Actions], nn.Module] = PolicyHead,
        extras: tuple[str, ...] = (),
        encoders: Encoders = Encoders.separate,
    ) -> None:
        """Build the parts in a fixed order; `encoders` counts where the config leaves it to the algorithm."""
        super().__init__()
        config = spec.config
        # Refuse what the parts below could not serve, before any of them is built.
        self.actions = check_spaces(spec.obs_space, spec.action_space)
        check_decodable(config.task_inference, spec.obs_space)
        unknown = set(extras) - set(self.EXTRAS)
        if unknown:
            raise ValueError(f"act() can record {', '.join(self.EXTRAS)}, not {', '.join(sorted(unknown))}.")
        self.extras = extras
        self.arch = config.arch
        # Whether actor and critic have one encoder and one memory.
        self.shares = (config.encoders or encoders) is Encoders.shared
        if self.shares and self.arch is Arch.Memory_Markov:
            raise ValueError(NOTHING_TO_SHARE)

        self.normaliser = _normaliser(spec)
        read_reward = attrgetter("reward") if self.normaliser is None else self.normaliser.read_reward

        # A stream of their own: the first parameters follow from the spec, whatever was drawn before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            self.actor = _network(
                spec,
                self.actions,
                lambda sizes: actor_head(sizes, self.actions),
                read_reward,
                remembers=self.arch is Arch.Memory,
            )
            self.critic = _network(
                spec,
                self.actions,
                critic_head,
                read_reward,
                remembers=self.arch is not Arch.Markov,
                shared_with=self.actor if self.shares else None,
            )
        self.to(spec.device)

    def initial_state(self, num_slots: int) -> State:
        """The acting state of N slots; an empty dict where the actor does not remember."""
        return self.actor.branch.initial_state(num_slots)

    def act(
        self, rows: PolicyRows, state: State, noise: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, dict[str, Tensor], State]:
        """Choose (action [N, ...], extras, state) for all N rows, always; idle rows give some action.

        `noise` is what `draw_noise` drew for these rows.
        """
        if self.normaliser is not None:
            rows = self.normaliser(rows)
        features, state = self.actor.step(rows, state)
        policy = self.actor.head(features)
        # The noise is drawn by the caller, by trial: so an action depends on no other slot's draws.
        action = policy.mode() if deterministic else policy.sample(noise)
        extras = {"log_prob": policy.log_prob(action)} if "log_prob" in self.extras else {}
        return action, extras, state

    def normalise(self, batch: Batch) -> Batch:
        """The rows as the networks read them; a batch that nothing normalises is left as it is."""
        return batch if self.normaliser is None else self.normaliser(batch)

    def update_normaliser(self, batch: Batch, discount: float) -> None:
        """Learn from whole trials how to normalise; nothing else does, so evaluation changes nothing."""
        if self.normaliser is not None:
            self.normaliser.update(batch, discount)

    def unroll(self, batch: Batch) -> Outputs:
        """The policy, and the features of actor and critic, at every row of a normalised batch."""
        # A batch without states starts from the initial one (None), as a whole trial does.
        actor, actor_state = self.actor.unroll_with_state(batch, batch.state)
        # A shared encoder and memory read the batch once for both.
        if self.shares:
            critic, critic_state = actor, {}
        else:
            critic, critic_state = self.critic.unroll_with_state(batch, batch.critic_state)
        return Outputs(self.actor.head(actor), actor, critic, (actor_state, critic_state))

    def inference_losses(
        self, batch: Batch, seed: int, **features: Features
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """(losses, metrics) of task inference from the features of "actor" and "critic" that are given.

        A memory that both share infers the task once, as the critic's.
        """
        losses: list[Tensor] = []
        metrics: dict[str, Tensor] = {}
        for name, network in (("actor", self.actor), ("critic", self.critic)):
            if name not in features or network.inference is None or (name == "actor" and self.shares):
                continue
            loss, parts = network.inference.loss(batch, features[name], seed)
            losses.append(loss)
            metrics |= {f"{name}_{part}": value for part, value in parts.items()}
        return losses, metrics

    def draw_inference_seed(self, generator: torch.Generator) -> int:
        """The seed of all draws of `inference_losses`, in whatever thread; 0 without inference."""
        # A draw would move the generator of runs that need none.
        if self.actor.inference is None and self.critic.inference is None:
            return 0
        return int(torch.randint(2**62, (), generator=generator, device=generator.device))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The parameters of actor and critic; what they share is the critic's."""
        critic = list(self.critic.parameters())
        # Tensors compare by value, so membership is by identity.
        ids = {id(parameter) for parameter in critic}
        return {
            "critic": critic,
            "actor": [parameter for parameter in self.actor.parameters() if id(parameter) not in ids],
        }

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
        """[num_rows, ...] the noise of a whole trial, in one draw."""
        return self.actions.draw_noise(rng, num_rows)


def _normaliser(spec: AgentSpec) -> Normaliser | None:
    """What normalises the rows of an agent, if anything is to be normalised."""
    config = spec.config
    # Without a memory nothing reads rewards but losses.
    standard = config.standardise_reward and config.arch is not Arch.Markov
    if not (config.normalise_obs or config.normalise_reward or standard):
        return None
    return Normaliser(
        spec.obs_space, obs=config.normalise_obs, reward=config.normalise_reward, standard=standard
    )


def check_spaces(obs: ObsSpace, action: ActionSpace) -> Actions:
    """The actions of an agent for these spaces; a `ValueError` of one sentence if it cannot serve them."""
    actions = actions_of(action)
    mask = obs.spaces.get(MASK_KEY) if isinstance(obs, spaces.Dict) else None
    readable_parts(obs)
    if mask is not None and mask.shape != (actions.dim,):
        raise ValueError(
            f"The observation {MASK_KEY!r} has the shape {mask.shape}, "
            f"and {action} needs one number for each action."
        )
    return actions


def _network(
    spec: AgentSpec,
    actions: Actions,
    head: Callable[[HeadSizes], nn.Module],
    read_reward: Callable[[Inputs], Tensor],
    *,
    remembers: bool,
    shared_with: Network | None = None,
) -> Network:
    """An actor or a critic with a head of its own; all before the head may be that of another network."""
    config = spec.config
    # The order of creation is part of the experiment: with the same seed the first parameters are the same.
    if shared_with is not None:
        encoder, branch, inference = shared_with.encoder, shared_with.branch, shared_with.inference
    else:
        encoder = encoder_of(spec.obs_space, config.picture_embedding)
        branch = MemoryBranch(spec, encoder.out_dim, actions, read_reward) if remembers else MarkovBranch()
        inference = TaskInference.of(config, branch.out_dim, encoder.out_dim, actions)
    # A head is built last, to the sizes of what it reads.
    sizes = HeadSizes(
        context=branch.out_dim if inference is None else inference.out_dim,
        obs=encoder.out_dim,
        action=actions.dim,
        shortcut=config.shortcut_embedding,
        hidden=config.hidden,
        activation=config.activation,
        conditioning=config.conditioning,
        hyper=config.hyper_embedding,
        bf16=config.precision is Precision.bfloat16,
        action_shortcut=config.critic_shortcut_embedding,
    )
    return Network(encoder, branch, head(sizes), inference)

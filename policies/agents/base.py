"""What an agent is built from, what it reads, and what it gives: the words between the collector, the agent
and the algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from gymnasium import spaces
from torch import Tensor

from buffers.base import Obs
from envs.base import ActionSpace
from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.mlp import Activation
from utils.options import OnlyIf, option

NOTHING_TO_SHARE = (
    "agent.encoders=shared needs an actor and a critic that both remember, and in agent=Memory_Markov "
    "only the critic does: use agent.encoders=separate."
)


class Arch(Enum):
    """Who remembers: nobody; actor and critic; the critic alone."""

    Markov = "Markov"
    Memory = "Memory"
    Memory_Markov = "Memory_Markov"


WITH_MEMORY = OnlyIf(lambda run, needs: run.agent.arch is not Arch.Markov, "agent=Markov has no memory")
WITHOUT_MEMORY = OnlyIf(
    lambda run, needs: run.agent.arch is Arch.Markov,
    "it is for agent=Markov, and an agent with a memory learns from trials or windows",
)
INFERS_TASK = OnlyIf(
    lambda run, needs: run.agent.task_inference.weight > 0, "agent.task_inference.weight is 0"
)
IN_HYPERNETWORK = OnlyIf(
    lambda run, needs: run.agent.conditioning is Conditioning.hypernetwork,
    "it is for agent.conditioning=hypernetwork",
)


class Encoders(Enum):
    """Whether actor and critic encode and remember each by itself, or once for both."""

    separate = "separate"
    shared = "shared"


class Precision(Enum):
    """The type in which products are computed."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class Decodes(Enum):
    """What a belief over the task is to predict: rewards, or next observations too."""

    reward = "reward"
    reward_and_transition = "reward_and_transition"


class HeadsRead(Enum):
    """What heads read of a memory that infers the task: its features, or the belief in their place."""

    features = "features"
    belief = "belief"


@dataclass
class TaskInferenceConfig:
    """Options of the loss by which a memory infers the task (task_inference.py); without a weight there is
    none of it.
    """

    weight: float = option(
        0.0,
        "weight of the task-inference loss beside those of the actor and the critic; 0 leaves it out",
        low=0,
    )
    latent: int = option(5, "numbers of the latent task that is believed in", low=1, only_if=INFERS_TASK)
    kl_weight: float = option(
        0.1,
        "weight of the belief's divergence from the one a row before, beside what it predicts",
        low=0,
        only_if=INFERS_TASK,
    )
    decode: Decodes = option(
        Decodes.reward,
        "what it predicts: reward, or reward_and_transition (next observations too)",
        only_if=INFERS_TASK,
    )
    rows: int | None = option(
        50,
        "rows for each column of a batch whose beliefs are trained in a gradient step; null takes all",
        low=1,
        only_if=INFERS_TASK,
    )
    steps: int | None = option(
        50,
        "steps of its trial that the belief of each of them predicts; null takes all",
        low=1,
        only_if=INFERS_TASK,
    )
    hidden: list[int] = option([64, 32], "layers of the networks that predict", low=1, only_if=INFERS_TASK)
    heads_read: HeadsRead = option(
        HeadsRead.features,
        "features, or belief: mean and log-variance, and the memory learns from this loss alone",
    )


class Conditioning(Enum):
    """How what is remembered enters a head's network."""

    concatenate = "concatenate"
    film = "film"
    hypernetwork = "hypernetwork"


@dataclass
class AgentConfig:
    """The parts of an agent and their sizes; an embedding of size 0 switches an input of the memory off."""

    arch: Arch = option(
        Arch.Memory, "Markov, Memory (actor and critic remember) or Memory_Markov (only the critic does)"
    )
    action_embedding: int = option(
        16,
        "size of the previous action's embedding in the memory's input; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    reward_embedding: int = option(
        16,
        "size of the previous reward's embedding in the memory's input; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    obs_embedding: int = option(
        32,
        "size of the observation's embedding in the memory's input; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    shortcut_embedding: int = option(
        32,
        "size of the embedding of the current observation that goes past the memory; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    picture_embedding: int = option(64, "features of a picture in the observation, by convolutions", low=1)
    hidden: list[int] = option([128, 128], "layers of the policy's and the critic's heads", low=1)
    activation: Activation = option(Activation.relu, "between those layers: relu or tanh")
    precision: Precision = option(
        Precision.float32,
        "bfloat16: an update computes those layers in it, with sums and parameters in float32, for 256 rows or more; it pays where the processor "
        "has it (avx512_bf16, AMX, CUDA), is slow elsewhere, and changes results a little",
    )
    conditioning: Conditioning = option(
        Conditioning.concatenate,
        "how heads read what is remembered: concatenate, beside the current row; film, it scales and shifts the hidden layers of a network of "
        "that row; hypernetwork, it makes that network's weights (in agent=Memory_Markov the critic's: the actor has nothing to read)",
    )
    hyper_embedding: int = option(
        16,
        "numbers that conditioning=hypernetwork first reduces the features of the memory to, its cost grows with them; 0 takes all",
        low=0,
        only_if=IN_HYPERNETWORK,
    )
    encoders: Encoders | None = option(
        None,
        "separate: actor and critic encode and remember each by itself; shared: once for both; null: shared by DQN, and by PPO where both "
        "remember or neither, else separate",
    )
    normalise_obs: bool = option(False, "shift and scale observations by their running mean and deviation")
    normalise_reward: bool = option(False, "scale rewards by the running deviation of the discounted return")
    task_inference: TaskInferenceConfig = field(
        default_factory=TaskInferenceConfig, metadata={"help": "infer the task from what is remembered"}
    )

    def problems(self) -> Iterator[str]:
        """One sentence for each combination of these options that cannot work."""
        if self.encoders is Encoders.shared and self.arch is Arch.Memory_Markov:
            yield NOTHING_TO_SHARE
        yield from self._conditioning_problems()
        inference = self.task_inference
        if inference.weight and self.arch is Arch.Markov:
            yield (
                "agent.task_inference.weight is for a memory, which agent=Markov does not have: "
                "use agent=Memory or agent=Memory_Markov."
            )
        if not inference.weight and inference.heads_read is HeadsRead.belief:
            yield (
                "agent.task_inference.heads_read=belief needs a belief that learns: "
                "set agent.task_inference.weight, to 1 for instance."
            )

    def _conditioning_problems(self) -> Iterator[str]:
        """One sentence for each option that does not go with the chosen conditioning."""
        if self.conditioning is Conditioning.concatenate:
            return
        chosen = f"agent.conditioning={self.conditioning.name}"
        if self.precision is not Precision.float32:
            yield (
                f"agent.precision={self.precision.name} is for plain layers, and {chosen} has none: "
                "use agent.precision=float32, or concatenate."
            )
        if self.arch is Arch.Markov:
            yield (
                f"{chosen} lets the memory change the heads, and agent=Markov has no memory: "
                "use agent=Memory, or concatenate."
            )
        elif self.shortcut_embedding == 0:
            yield (
                f"{chosen} makes a network of the current row, which agent.shortcut_embedding=0 leaves out: "
                "give it a size, or use concatenate."
            )
        if self.conditioning is Conditioning.film and not self.hidden:
            yield (
                f"{chosen} changes hidden layers, and agent.hidden is empty: "
                "give it one, or use hypernetwork."
            )


@dataclass(frozen=True)
class AgentSpec:
    """What an agent is built from; its first parameters are a function of it, the seed included."""

    obs_space: spaces.Box | spaces.Dict
    action_space: ActionSpace
    config: AgentConfig
    memory: type[Memory]
    memory_config: MemoryConfig
    device: str = "cpu"
    seed: int = 0


class Inputs(Protocol):
    """The fields of a row that an agent reads: those of the rows of all slots and of a Batch alike."""

    obs: Obs
    reward: Tensor
    prev_action: Tensor
    episode_start: Tensor
    trial_start: Tensor


@dataclass
class PolicyRows:
    """Rows of all N slots as tensors on the policy's device."""

    obs: Obs
    reward: Tensor
    """[N] float32"""
    prev_action: Tensor
    episode_start: Tensor
    """[N] bool"""
    trial_start: Tensor
    """[N] bool"""

    def to(self, device: str) -> PolicyRows:
        """The same rows on another device."""
        obs = (
            {key: part.to(device) for key, part in self.obs.items()}
            if isinstance(self.obs, dict)
            else self.obs.to(device)
        )
        return PolicyRows(
            obs,
            self.reward.to(device),
            self.prev_action.to(device),
            self.episode_start.to(device),
            self.trial_start.to(device),
        )


class Distribution(Protocol):
    """A distribution over actions, with leading dimensions [...]; whatever head made it."""

    def sample(self, noise: Tensor) -> Tensor:
        """[..., A] the action that this noise picks."""
        ...

    def mode(self) -> Tensor:
        """[..., A] the deterministic action."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability (density) of an action."""
        ...


class Features(NamedTuple):
    """What a head reads of rows, [T, B, ...], [N, ...] or, once selected, [M, ...]."""

    context: Tensor
    """[..., F] what the trial so far has shown: the memory's output or a belief; F = 0 without a memory."""
    obs: Tensor
    """[..., D] the current observation, encoded."""
    mask: Tensor | None = None
    """[..., n] which actions are allowed, where the observation says so."""
    memory: Tensor | None = None
    """[T, B, F] the memory's output, with gradients, where a loss infers the task from it; None once selected."""

    def select_rows(self, rows: Tensor) -> Features:
        """[M, ...] of [T, B, ...], by flat row numbers."""
        return Features(
            select_rows(self.context, rows),
            select_rows(self.obs, rows),
            None if self.mask is None else select_rows(self.mask, rows),
        )

    def detach(self) -> Features:
        """The same numbers, without gradients."""
        return Features(self.context.detach(), self.obs.detach(), self.mask)


def select_rows(values: Tensor, rows: Tensor) -> Tensor:
    """[M, ...] of [T, B, ...], by flat row numbers."""
    return values.flatten(0, 1).index_select(0, rows)


@dataclass
class Outputs:
    """What an agent computes for every row of a batch, with gradients."""

    policy: Distribution
    """Over [T, B]."""
    actor: Features
    critic: Features
    states: tuple[State, State]
    """The states of actor and critic after the last row; the critic's is empty where they share a memory."""

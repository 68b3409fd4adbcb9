"""What an agent is built from, reads and gives: what collector, agent and algorithms share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from gymnasium import spaces
from torch import Tensor

from buffers.base import Obs
from envs.base import ActionSpace, map_obs
from policies.memory.base import Memory, MemoryConfig, State
from policies.nn.mlp import Activation
from utils.options import OnlyIf, option

NOTHING_TO_SHARE = (
    "agent.encoders=shared needs an actor and a critic that both remember, and in agent=Memory_Markov "
    "only the critic does: use agent.encoders=separate."
)


class Arch(Enum):
    """Which networks have a memory: none, actor and critic, or the critic alone."""

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
    """Whether actor and critic have an encoder and a memory each, or share them."""

    separate = "separate"
    shared = "shared"


class Precision(Enum):
    """The type in which products are computed."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class Decodes(Enum):
    """What a belief over the task predicts: rewards, or next observations too."""

    reward = "reward"
    reward_and_transition = "reward_and_transition"


class HeadsRead(Enum):
    """What heads read of a memory that infers the task: its output, or the belief in its place."""

    features = "features"
    belief = "belief"


@dataclass
class TaskInferenceConfig:
    """Options of the loss by which a memory infers the task (task_inference.py).

    With `heads_read=belief` heads read the mean and log-variance of the belief, and the memory learns from
    this loss alone.
    """

    weight: float = option(
        0.0, "weight of the task-inference loss beside actor and critic; 0 leaves it out", low=0
    )
    latent: int = option(5, "numbers of the latent task", low=1, only_if=INFERS_TASK)
    kl_weight: float = option(
        0.1,
        "weight of the KL divergence of each belief from the one a row before",
        low=0,
        only_if=INFERS_TASK,
    )
    decode: Decodes = option(
        Decodes.reward,
        "what a belief predicts: reward, or reward_and_transition (next observations too)",
        only_if=INFERS_TASK,
    )
    rows: int | None = option(
        50,
        "rows per column of a batch whose beliefs a gradient step trains; null takes all",
        low=1,
        only_if=INFERS_TASK,
    )
    steps: int | None = option(
        50,
        "steps of its trial that each of these beliefs predicts; null takes all",
        low=1,
        only_if=INFERS_TASK,
    )
    hidden: list[int] = option(
        [64, 32], "hidden layers of the decoders, the networks that predict", low=1, only_if=INFERS_TASK
    )
    heads_read: HeadsRead = option(
        HeadsRead.features, "what heads read: features (the memory's output), or belief"
    )


class Conditioning(Enum):
    """How the memory's output enters a head's network (conditioning.py)."""

    concatenate = "concatenate"
    film = "film"
    hypernetwork = "hypernetwork"


@dataclass
class AgentConfig:
    """The parts of an agent and their sizes; an embedding of size 0 switches an input off.

    `precision=bfloat16` computes the heads' hidden layers of updates so, for 256 rows or more, with sums and
    parameters in float32. It pays where the processor has it (avx512_bf16, AMX, CUDA), is slow elsewhere, and
    changes results a little.

    `conditioning`: with concatenate the memory's output stands beside the current row; with film it scales
    and shifts the hidden layers of a network of that row; with hypernetwork it makes that network's weights.
    In agent=Memory_Markov this concerns the critic, as the actor has no memory.

    `encoders=null` means shared for DQN, and for PPO where both networks have a memory or neither; for all
    others it means separate.
    """

    arch: Arch = option(
        Arch.Memory, "which networks have a memory: Markov none, Memory both, Memory_Markov the critic"
    )
    action_embedding: int = option(
        16,
        "size of the previous action's embedding for the memory; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    reward_embedding: int = option(
        16,
        "size of the reward's embedding for the memory; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    obs_embedding: int = option(
        32,
        "size of the observation's embedding for the memory; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    shortcut_embedding: int = option(
        32,
        "size of the current observation's embedding for the heads; 0 leaves it out",
        low=0,
        only_if=WITH_MEMORY,
    )
    critic_shortcut_embedding: int | None = option(
        None,
        "size of the shortcut of observation and action for critics that read both; null: shortcut_embedding",
        low=1,
        only_if=WITH_MEMORY,
    )
    picture_embedding: int = option(
        64, "numbers to which convolutions reduce a picture in the observation", low=1
    )
    hidden: list[int] = option([128, 128], "hidden layers of the policy's and the critic's heads", low=1)
    activation: Activation = option(Activation.relu, "function between those layers: relu or tanh")
    precision: Precision = option(
        Precision.float32, "type in which updates compute those layers: float32 or bfloat16"
    )
    conditioning: Conditioning = option(
        Conditioning.concatenate,
        "how the memory's output enters the heads: concatenate, film or hypernetwork",
    )
    hyper_embedding: int = option(
        16,
        "numbers to which a hypernetwork first reduces the memory's output; 0 takes it as it is",
        low=0,
        only_if=IN_HYPERNETWORK,
    )
    encoders: Encoders | None = option(
        None, "separate, shared (one encoder and memory for actor and critic), or null: by algorithm"
    )
    normalise_obs: bool = option(False, "shift and scale observations by their running mean and deviation")
    normalise_reward: bool = option(False, "scale rewards by the running deviation of the discounted return")
    standardise_reward: bool = option(
        False,
        "let the memory read rewards by their own running mean and deviation, whatever losses read",
        only_if=WITH_MEMORY,
    )
    task_inference: TaskInferenceConfig = field(
        default_factory=TaskInferenceConfig, metadata={"help": "infer the task from the memory's output"}
    )

    def problems(self) -> Iterator[str]:
        """One sentence for each combination of these options that cannot work."""
        # What belongs to one option alone is checked by its range; here are pairs of options.
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
    """What an agent is built from; its first parameters follow from it, the seed included."""

    obs_space: spaces.Box | spaces.Dict
    action_space: ActionSpace
    config: AgentConfig
    memory: type[Memory]
    memory_config: MemoryConfig
    device: str = "cpu"
    seed: int = 0


class Inputs(Protocol):
    """The fields of rows that an agent reads; PolicyRows and Batch have them."""

    obs: Obs
    reward: Tensor
    prev_action: Tensor
    episode_start: Tensor
    trial_start: Tensor


@dataclass
class PolicyRows:
    """Rows of all N slots as tensors on the policy's device."""

    obs: Obs
    # [N] float32
    reward: Tensor
    prev_action: Tensor
    # [N] bool
    episode_start: Tensor
    # [N] bool
    trial_start: Tensor

    def to(self, device: str) -> PolicyRows:
        """The same rows on another device."""
        return PolicyRows(
            map_obs(lambda part: part.to(device), self.obs),
            self.reward.to(device),
            self.prev_action.to(device),
            self.episode_start.to(device),
            self.trial_start.to(device),
        )


class Distribution(Protocol):
    """A distribution over actions, with leading dimensions [...]."""

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

    # [..., F] what the trial so far has shown: the memory's output or a belief; F = 0 without a memory.
    context: Tensor
    # [..., D] the current observation, encoded.
    obs: Tensor
    # [..., n] which actions are allowed, where the observation says so.
    mask: Tensor | None = None
    # [T, B, F] the memory's output, where a loss infers the task from it; None once rows are selected.
    memory: Tensor | None = None

    def select_rows(self, rows: Tensor) -> Features:
        """[M, ...] of [T, B, ...], by flat row numbers."""
        # The memory's output is left out: task inference reads whole batches.
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

    # Over [T, B].
    policy: Distribution
    actor: Features
    critic: Features
    # The states of actor and critic after the last row; the critic's is empty where they share a memory.
    states: tuple[State, State]

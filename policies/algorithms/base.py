"""The contract of an algorithm: it says what it needs, and turns a batch into one update. It owns its
optimisers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from buffers.base import Batch, Needs
from envs.base import ActionSpace
from policies.agents.actions import ActionKind, actions_of
from policies.agents.agent import Agent
from policies.agents.base import AgentConfig, AgentSpec, Arch
from policies.memory.base import Memory
from utils.options import option


class ReturnHorizon(Enum):
    """Where the return of a row stops: at the end of the trial, or of the episode."""

    trial = "trial"
    episode = "episode"


@dataclass
class AlgorithmConfig:
    """Options that every algorithm has; an algorithm adds its own in a subclass (`name` is the registry
    name).
    """

    name: str = option("???", "the algorithm's name in the registry")
    return_horizon: ReturnHorizon = option(ReturnHorizon.trial, "where returns stop: trial or episode")
    timeout_bootstrap: bool = option(
        True, "where the return stops at a time limit, bootstrap from the ended row"
    )
    discount: float = option(0.99, "gamma, per env step", low=0, high=1)
    learning_rate: float = option(3e-4, "step size of the optimisers", above=0)
    encoder_learning_rate: float | None = option(
        None,
        "step size of embeddings and memories; null: learning_rate. A hundredth of that steadies long training (RESeL)",
        above=0,
    )


class Algorithm(ABC):
    """Built as `cls(config, cls.make_agent(config, spec), seed=seed)`."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    serves: ClassVar[tuple[ActionKind, ...]]
    """The kinds of actions that it can learn."""
    agent: Agent

    @classmethod
    def check_actions(cls, space: ActionSpace) -> None:
        """Refuse an action space that it cannot serve, by a `ValueError` of one sentence."""
        if actions_of(space).kind not in cls.serves:
            raise ValueError(
                f"{cls.__name__} learns {' and '.join(kind.value for kind in cls.serves)} actions, not {space}."
            )

    @classmethod
    def problems(cls, config: Any, agent: AgentConfig) -> Iterator[str]:
        """One sentence for each option of the algorithm that cannot work with the others, or with the agent's."""
        yield from ()

    @classmethod
    def problems_of_memory(
        cls, config: Any, agent: AgentConfig, memory: type[Memory], name: str
    ) -> Iterator[str]:
        """One sentence for each option of the algorithm that cannot work with this memory."""
        if cls.needs(config, agent.arch).state_every and not memory.stores_state:
            yield (
                f"memory={name} has no state that is worth storing, for it reads whole trials: "
                "use algorithm.window_start=zero, or algorithm.window=0, which takes whole trials."
            )

    @classmethod
    def check(cls, config: Any, spec: AgentSpec) -> None:
        """Refuse what it cannot learn, by a `ValueError` of one sentence."""
        cls.check_actions(spec.action_space)
        for problem in (
            *spec.config.problems(),
            *cls.problems(config, spec.config),
            *cls.problems_of_memory(config, spec.config, spec.memory, spec.memory_config.name),
        ):
            raise ValueError(problem)

    @classmethod
    @abstractmethod
    def needs(cls, config: Any, arch: Arch) -> Needs:
        """What it asks for, for one architecture."""

    @classmethod
    @abstractmethod
    def make_agent(cls, config: Any, spec: AgentSpec) -> Agent:
        """An agent with the heads that this algorithm trains; refuses by `check` what it cannot learn."""

    @abstractmethod
    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None: ...

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step of everything it owns; metrics as detached 0-d tensors (turning them into floats
        waits for the device).
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that another process needs to go on bit for bit: parameters, targets, optimisers,
        generators.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""


def optimizer_groups(
    parameters: Sequence[Tensor], agent: Agent, config: AlgorithmConfig
) -> list[dict[str, Any]]:
    """The same parameters as an optimiser takes them: what belongs to embeddings and memories apart, where it
    has a step size of its own.
    """
    if config.encoder_learning_rate is None:
        return [{"params": list(parameters)}]
    parts = [part for network in (agent.actor, agent.critic) for part in (network.encoder, network.branch)]
    encoders = {id(parameter) for part in parts for parameter in part.parameters()}
    heads, slow = (
        [one for one in parameters if id(one) not in encoders],
        [one for one in parameters if id(one) in encoders],
    )
    groups = [{"params": heads}, {"params": slow, "lr": config.encoder_learning_rate}]
    return [group for group in groups if group["params"]]

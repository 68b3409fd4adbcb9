"""The contract of an algorithm: it declares what it needs, and turns a batch into one update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from buffers.base import Batch, Needs
from envs.base import ActionSpace
from policies.agents.actions import ActionKind, actions_of
from policies.agents.agent import Agent
from policies.agents.base import AgentConfig, AgentSpec, Arch
from policies.algorithms.step_sizes import StepSizes
from policies.memory.base import Memory
from utils.options import option


class ReturnHorizon(Enum):
    """Where the return of a row stops: at the end of the trial, or of the episode."""

    trial = "trial"
    episode = "episode"


@dataclass
class AlgorithmConfig:
    """Options that every algorithm has; an algorithm adds its own in a subclass.

    With an `encoder_learning_rate` embeddings and memories take steps of their own size. A hundredth of the
    learning rate steadies long training (RESeL).
    """

    name: str = option("???", "the algorithm's name in the registry")
    # What is maximised: the target rule of policies/returns.py.
    return_horizon: ReturnHorizon = option(
        ReturnHorizon.trial, "where the return of a row stops: at the end of its trial or its episode"
    )
    timeout_bootstrap: bool = option(
        True, "bootstrap from the ended row where the return stops at a time limit"
    )
    discount: float = option(0.99, "gamma, per env step", low=0, high=1)
    # How large steps are.
    learning_rate: float = option(3e-4, "step size of the optimisers", above=0)
    encoder_learning_rate: float | None = option(
        None, "step size of embeddings and memories; null: learning_rate", above=0
    )
    learning_rate_left: float = option(
        1.0, "part of the step sizes left at the end of the run; 1: they are constant", low=0, high=1
    )

    def step_size_left(self, env_steps: int, total: int) -> float:
        """The part of the step sizes that is left after so many env steps of a run of `total`."""
        return 1.0 - (1.0 - self.learning_rate_left) * min(env_steps / total, 1.0)


class Passes(NamedTuple):
    """How one update goes through its rows: so many epochs of so many gradient steps."""

    epochs: int = 1
    steps: int = 1
    # The gradient steps of an epoch that the config asks for, of which there may be too few columns.
    asked: int = 1


class Algorithm(ABC):
    """A learner of one kind: built as `cls(config, cls.make_agent(config, spec), seed=seed)`."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    # The kinds of actions that the algorithm can learn.
    serves: ClassVar[tuple[ActionKind, ...]]
    config: Any
    agent: Agent
    # Those of its optimisers, which fall in the course of a run where the config says so.
    step_sizes: tuple[StepSizes, ...] = ()

    @classmethod
    def check_actions(cls, space: ActionSpace) -> None:
        """Refuse an action space that the algorithm cannot learn, by a `ValueError` of one sentence."""
        if actions_of(space).kind not in cls.serves:
            kinds = " and ".join(kind.value for kind in cls.serves)
            raise ValueError(f"{cls.__name__} learns {kinds} actions, not {space}.")

    @classmethod
    def problems(cls, config: Any, agent: AgentConfig) -> Iterator[str]:
        """One sentence for each option that cannot work with the others, or with the agent's."""
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
        """Refuse spaces, agents and memories that it cannot learn with, by a `ValueError` of one sentence."""
        # The contract: the kind of actions first, then each class checks its own options.
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
        """Which rows the algorithm asks the collector and the buffer for, given an architecture."""

    @classmethod
    def passes(cls, config: Any, arch: Arch, columns: int, rows: int) -> Passes:
        """How an update goes through so many columns of so many rows; off-policy it is one gradient step."""
        return Passes()

    @classmethod
    @abstractmethod
    def make_agent(cls, config: Any, spec: AgentSpec) -> Agent:
        """An agent with the heads that this algorithm trains; refuses by `check` what it cannot learn."""

    @abstractmethod
    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None: ...

    # Whether `surprise` is there: whether a critic predicts what the agent's own actions return.
    predicts_values: ClassVar[bool] = False

    def surprise(self, batch: Batch) -> Tensor:
        """[B] how wrong the values were about each column, a trial: the mean of |GAE| over its rows."""
        raise NotImplementedError(f"{type(self).__name__} predicts no values")

    @classmethod
    def warnings(cls, config: Any, total: int) -> Iterator[str]:
        """One sentence for each option that does not suit a run of `total` env steps; none by default."""
        yield from ()

    def at(self, env_steps: int, total: int) -> None:
        """Set what changes in the course of a run of `total` env steps; called before each update."""
        for step_sizes in self.step_sizes:
            step_sizes.leave(self.config.step_size_left(env_steps, total))

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Learn from one batch; return metrics.

        Metrics are detached 0-d tensors: turning one into a float would wait for the device.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that another process needs to continue bit for bit: parameters, optimisers, generators."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""


def add_metrics(sums: dict[str, Tensor], metrics: Mapping[str, Tensor]) -> None:
    """Add metrics to the sums of the same names; a sum starts at 0."""
    for name, value in metrics.items():
        sums[name] = sums.get(name, torch.zeros_like(value)) + value


def optimizer_groups(
    parameters: Sequence[Tensor], agent: Agent, config: AlgorithmConfig
) -> list[dict[str, Any]]:
    """Parameter groups of an optimiser: one, or two where encoders have a step size of their own."""
    if config.encoder_learning_rate is None:
        return [{"params": list(parameters)}]

    # What actor and critic share is listed twice here; a set of identities holds it once.
    parts = [part for network in (agent.actor, agent.critic) for part in (network.encoder, network.branch)]
    encoder_ids = {id(parameter) for part in parts for parameter in part.parameters()}
    heads = [parameter for parameter in parameters if id(parameter) not in encoder_ids]
    encoders = [parameter for parameter in parameters if id(parameter) in encoder_ids]

    # An owner may have parameters of one kind only: optimisers refuse an empty group.
    groups = [{"params": heads}, {"params": encoders, "lr": config.encoder_learning_rate}]
    return [group for group in groups if group["params"]]

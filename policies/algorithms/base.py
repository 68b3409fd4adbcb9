"""The contract of an algorithm: it says what it needs, and turns a batch into one update. It owns its optimisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from buffers.base import Batch, Needs
from policies.agents.agent import Agent
from policies.agents.base import AgentSpec, Arch
from utils.options import option


class ReturnHorizon(Enum):
    """Where the return of a row stops: at the end of the trial, or of the episode."""

    trial = "trial"
    episode = "episode"


@dataclass
class AlgorithmConfig:
    """Options that every algorithm has; an algorithm adds its own in a subclass (`name` is the registry name)."""

    name: str = option("???", "the algorithm's name in the registry")
    return_horizon: ReturnHorizon = option(ReturnHorizon.trial, "where returns stop: trial or episode")
    timeout_bootstrap: bool = option(True, "where the return stops at a time limit, bootstrap from the ended row")
    discount: float = option(0.99, "gamma, per env step", low=0, high=1)
    learning_rate: float = option(3e-4, "step size of the optimisers", above=0)


class Algorithm(ABC):
    """Built as `cls(config, cls.make_agent(config, spec), seed=seed)`."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    agent: Agent

    @classmethod
    @abstractmethod
    def needs(cls, config: Any, arch: Arch) -> Needs:
        """What it asks for, for one architecture."""

    @classmethod
    @abstractmethod
    def make_agent(cls, config: Any, spec: AgentSpec) -> Agent:
        """An agent with the heads that this algorithm trains; refuses an action space it cannot serve in one sentence."""

    @abstractmethod
    def __init__(self, config: Any, agent: Agent, *, seed: int) -> None: ...

    @abstractmethod
    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step of everything it owns; metrics as detached 0-d tensors (turning them into floats waits for the device)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that another process needs to go on bit for bit: parameters, targets, optimisers, generators."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""

"""AgentRecord: all that acting takes, read from a run's folder or from the file of an agent alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envs.base import ActionSpace, EnvSpec, ObsSpace
from envs.layout import Layout
from envs.meta.make_env import recorded_spec
from policies.agents.acting import acting_part, load_acting
from policies.agents.agent import Agent
from policies.agents.base import AgentConfig, AgentSpec
from policies.algorithms import ALGORITHMS
from policies.memory import MEMORIES
from policies.run.checkpointing import BEST
from policies.run.config import CHECKPOINTS, RECORD, Config, WhichCheckpoint, read_record, recordable
from utils.checkpoint import CheckpointStore
from utils.disk.own_files import check_run_folder, replacing
from utils.options import OptionError, from_keywords, nearest

# The number of the names in an agent's file: other numbers are not read.
FILE_FORMAT = 1

T = TypeVar("T")


@dataclass(frozen=True)
class AgentRecord:
    """What an agent was built from and what it has learned, without its critic."""

    # What its environments show and take; the task and the new-episode flag are not in these spaces.
    spec: EnvSpec
    # The config of its run, as the types of YAML.
    config: dict[str, Any]
    # The parameters of what acts, by their names in the agent.
    parameters: dict[str, Any]
    # The env steps after which they were saved.
    env_steps: int

    @classmethod
    def of_agent(cls, agent: Agent, spec: EnvSpec, config: Config, env_steps: int = 0) -> AgentRecord:
        """The record of an agent in memory."""
        return cls(spec, recordable(config), acting_part(agent.state_dict()), env_steps)

    @classmethod
    def load(cls, path: Path, which: str = WhichCheckpoint.last.value) -> AgentRecord:
        """The record of a run's folder, at its last checkpoint or its best one, or of an agent's file."""
        if which not in WhichCheckpoint.__members__:
            raise OptionError(
                f"There is no checkpoint {which!r}.{nearest(str(which), WhichCheckpoint.__members__)}"
            )
        if path.is_file():
            return cls._of_file(path)
        if not path.exists():
            raise OptionError(f"{path} does not exist: name the folder of a run, or the file of an agent.")
        return cls._of_run(path, best=WhichCheckpoint[which] is WhichCheckpoint.best)

    @classmethod
    def _of_run(cls, run_dir: Path, *, best: bool) -> AgentRecord:
        # Nothing is written, and the segments of the replay, which may be a link, are not opened.
        check_run_folder(run_dir, allow_links=True)
        if not (run_dir / RECORD).is_file():
            raise OptionError(f"{run_dir} is not the folder of a run: it has no {RECORD}.")
        config = read_record(run_dir / RECORD)
        folder = run_dir / CHECKPOINTS
        checkpoint = CheckpointStore(folder / BEST if best else folder).latest(with_segments=False)
        if checkpoint is None:
            kind = "best agent, since it was not evaluated yet" if best else "checkpoint yet"
            raise OptionError(f"{run_dir} has no {kind}, so there is no agent to load.")
        # The spaces are those that the family reports.
        spec = recorded_spec(config["env"])
        tensors = checkpoint.tensors
        agent = tensors["agent"] if best else tensors.get("judged") or tensors["algorithm"]["agent"]
        return cls(spec, config, acting_part(agent), checkpoint.step)

    @classmethod
    def _of_file(cls, path: Path) -> AgentRecord:
        try:
            # Objects are never unpickled, whoever the file comes from.
            stored = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a crafted file can make the loader raise anything
            raise OptionError(f"{path} is not the file of an agent: it cannot be read.") from error
        number = stored.get("agent_format") if isinstance(stored, dict) else None
        if number != FILE_FORMAT:
            raise OptionError(f"{path} is not the file of an agent that this version of Retrial reads.")
        spec = EnvSpec(
            stored["name"],
            _space_of(stored["obs_space"]),
            _space_of(stored["action_space"]),
            stored["task_dim"],
        )
        return cls(spec, stored["config"], stored["parameters"], stored["env_steps"])

    def save(self, path: Path) -> None:
        """Write an agent's file; it takes neither the run nor the environment to load it."""
        stored = {
            "agent_format": FILE_FORMAT,
            "name": self.spec.name,
            "obs_space": _plain_space(self.spec.obs_space),
            "action_space": _plain_space(self.spec.action_space),
            "task_dim": self.spec.task_dim,
            "config": self.config,
            "parameters": self.parameters,
            "env_steps": self.env_steps,
        }
        with replacing(path) as file:  # a reader finds the old file or the new one, never half of one
            torch.save(stored, file)

    # -- what the run was ------------------------------------------------------------------------------------

    @property
    def episodes(self) -> int:
        """k: the episodes of a trial in evaluation."""
        return self.config["evaluation"]["episodes_per_trial"] or self.config["env"]["max_rollouts_per_task"]

    @property
    def horizon(self) -> int:
        """H: the most env steps of an episode."""
        return self.config["env"]["max_episode_steps"]

    @property
    def layout(self) -> Layout:
        """The rows that the agent was trained on."""
        env = self.config["env"]
        return Layout(self.spec, with_task=env["oracle"], with_flag=env["max_rollouts_per_task"] > 1)

    @property
    def reads_rewards(self) -> bool:
        """Whether the agent's actions depend on the rewards."""
        agent = self.config["agent"]
        return agent["arch"] == "Memory" and agent["reward_embedding"] > 0

    def build(self, rows_per_trial: int, device: str) -> Agent:
        """The agent, with room in its memory for trials of so many rows."""
        memory, algorithm = (self._section(name) for name in ("memory", "algorithm"))
        kind, learner = MEMORIES[memory["name"]], ALGORITHMS[algorithm["name"]]
        memory_config = typed(kind.Config, "memory", memory)
        config = typed(AgentConfig, "agent", self._section("agent"))
        if config.arch.name != "Markov":
            memory_config = kind.fitted(memory_config, rows_per_trial)
        agent = learner.make_agent(
            typed(learner.Config, "algorithm", algorithm),
            AgentSpec(self.layout.obs_space, self.spec.action_space, config, kind, memory_config, device),
        )
        load_acting(agent, self.parameters)
        return agent

    def _section(self, name: str) -> dict[str, Any]:
        return self.config[name]


def typed(kind: type[T], owner: str, values: Mapping[str, Any]) -> T:
    """The config dataclass of plain values, the inverse of `plain`; a wrong one is refused in a sentence."""
    hints = get_type_hints(kind)
    converted = dict(values)
    for item in fields(kind):  # pyright: ignore[reportArgumentType]
        if is_dataclass(hints[item.name]) and item.name in values:
            nested: Any = hints[item.name]
            converted[item.name] = typed(nested, f"{owner}.{item.name}", values[item.name])
    return from_keywords(kind, owner, converted)


# -- spaces in a file ----------------------------------------------------------------------------------------


def _plain_space(space: ObsSpace | ActionSpace) -> dict[str, Any]:
    """A space as numbers and tensors."""
    if isinstance(space, spaces.Dict):
        return {"parts": dict(_plain_parts(space))}
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"choices": space.nvec.tolist()}
    assert isinstance(space, spaces.Box)
    bounds = {"low": _bound(space.low), "high": _bound(space.high)}
    return {"shape": list(space.shape), "dtype": space.dtype.name, **bounds}


def _plain_parts(space: spaces.Dict) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, part in space.spaces.items():
        assert isinstance(part, spaces.Box)
        yield key, _plain_space(part)


def _bound(bound: Any) -> Tensor:
    """The bounds of a box, or one number where all are the same: those of a picture are many."""
    one = bound.reshape(-1)[:1]
    return torch.from_numpy(one.copy() if (bound == one).all() else bound.copy())


def _space_of(stored: Mapping[str, Any]) -> Any:
    """The space of what `_plain_space` gave."""
    if "parts" in stored:
        return spaces.Dict({key: _space_of(part) for key, part in stored["parts"].items()})
    if "n" in stored:
        return spaces.Discrete(stored["n"], start=stored["start"])
    if "choices" in stored:
        return spaces.MultiDiscrete(stored["choices"])
    shape, dtype = tuple(stored["shape"]), np.dtype(stored["dtype"])
    low, high = (np.broadcast_to(stored[name].numpy(), shape) for name in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)
